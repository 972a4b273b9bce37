"""Lease: a waiting process takes over from a dead owner, exactly one of several does, and a living owner keeps it."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from falkirk.errors import StoreError
from falkirk.home.folder import Home, waiting_home
from falkirk.home.lease import MARGIN_S, LeaseKeeper, LeaseWatch, await_home
from falkirk.store import Lease
from tests.stores import Place
from tests.support import wait_until

LASTS_S = 10.0
#: An owner that renews its lease until it is killed.
OWNER = """
import pathlib, signal, sys
from falkirk.home.lease import LeaseKeeper, await_home
home = await_home(pathlib.Path(sys.argv[1]), "shop", None, lasts_s=4.0, pause=lambda s: False, say=print)
with LeaseKeeper(home, 4.0, print):
    print("owns", flush=True)
    signal.pause()
"""


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def lease(beat: int, lasts_s: float = LASTS_S) -> Lease:
    """Return a lease of generation 1."""
    return Lease(generation=1, holder="the owner", beat=beat, lasts_s=lasts_s)


def test_a_home_is_free_only_after_the_number_has_stood_still() -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    assert watch.is_free(None)
    for beat in range(20):
        clock.now_s += LASTS_S
        assert not watch.is_free(lease(beat))
    clock.now_s += LASTS_S
    assert not watch.is_free(lease(19))
    clock.now_s += 0.1
    assert watch.is_free(lease(19))


def test_a_released_home_is_free_at_once() -> None:
    assert LeaseWatch(Clock()).is_free(lease(3, lasts_s=0.0))


def test_time_without_sight_of_the_lease_does_not_count() -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    assert not watch.is_free(lease(1))
    clock.now_s += 60
    watch.lose_sight()
    assert not watch.is_free(lease(1))
    clock.now_s += LASTS_S + 0.1
    assert watch.is_free(lease(1))


def test_of_two_that_wait_one_takes_over_and_the_former_owner_is_refused(place: Place) -> None:
    former, one, two = place.open(), place.open(), place.open()
    assert former.take_lease("former", None, LASTS_S)
    former.renew_lease()
    seen = one.lease()
    assert seen == two.lease()
    assert seen is not None
    assert seen.beat == 1
    former.renew_lease()
    assert not one.take_lease("one", seen, LASTS_S)  # it lives
    seen = one.lease()
    assert one.take_lease("one", seen, LASTS_S)
    assert not two.take_lease("two", seen, LASTS_S)
    for write in (former.renew_lease, former.release_lease):
        with pytest.raises(StoreError) as caught:
            write()
        assert caught.value.condition == "HOME_TAKEN_OVER"
    one.release_lease()
    released = two.lease()
    assert released is not None
    assert (released.generation, released.lasts_s) == (2, 0.0)
    for store in (former, one, two):
        store.close()


def test_an_owner_without_a_lease_leaves_the_decision_to_the_lock(place: Place) -> None:
    with_lease, without = place.open(), place.open()
    assert with_lease.take_lease("with", None, LASTS_S)
    without.take_charge("without")
    found = without.lease()
    assert found == Lease(generation=2, holder="without", beat=-1, lasts_s=0.0)
    with_lease.close()
    without.close()


class Keeping:
    """A keeper without threads, with a clock and a process that the test controls."""

    def __init__(self, folder: Path) -> None:
        found = waiting_home(folder, "shop")
        assert found.take_lease(None, LASTS_S)
        self.home: Home = found
        self.clock, self.ends, self.said = Clock(), list[int](), list[str]()
        self.keeper = LeaseKeeper(found, LASTS_S, self.said.append, end=self.ends.append, clock=self.clock)


def test_an_owner_that_cannot_renew_ends_before_another_may_start(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    keeper, clock = keeping.keeper, keeping.clock
    clock.now_s += 5
    keeper.renew()
    clock.now_s += LASTS_S - MARGIN_S
    keeper.check()
    assert not keeping.ends
    clock.now_s += 0.1

    def away() -> None:
        raise StoreError("STORE_AWAY", "the store is away")

    keeping.home.store.before_commits(away)
    keeper.renew()
    keeper.check()
    assert keeping.ends
    keeping.home.close()


def test_an_owner_that_stood_still_and_was_replaced_ends(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    # The lock of a machine that is cut off may be free elsewhere, so only the store is asked here.
    successor = waiting_home(tmp_path, "shop")
    assert successor.store.take_lease("successor", successor.store.lease(), LASTS_S)
    keeping.keeper.renew()
    assert keeping.ends
    assert "successor" in keeping.said[0]
    keeping.home.close()
    successor.close()


def test_a_lock_that_is_held_is_not_taken_over(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    waiting = waiting_home(tmp_path, "shop")
    assert not waiting.take_lease(waiting.store.lease(), LASTS_S)
    keeping.home.store.release_lease()
    keeping.home.close()
    assert waiting.take_lease(waiting.store.lease(), LASTS_S)
    waiting.close()


def test_a_process_that_cannot_see_the_store_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, looks = list[str](), list[float]()

    def away(*given: object) -> Home:
        raise StoreError("STORE_AWAY", "the store is away")

    def pause(seconds: float) -> bool:
        looks.append(seconds)
        return len(looks) == 3

    monkeypatch.setattr("falkirk.home.lease.waiting_home", away)
    assert await_home(tmp_path, "shop", None, lasts_s=LASTS_S, pause=pause, say=said.append) is None
    assert (len(looks), len(said)) == (3, 1)


def test_a_killed_owner_is_replaced(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owns\n"
        with waiting_home(tmp_path, "shop") as waiting:

            def is_renewed() -> bool:
                found = waiting.store.lease()
                return found is not None and found.beat > 0

            wait_until(is_renewed, 10, "the owner renews its lease")
    finally:
        owner.kill()
        owner.wait()
    killed_s = time.monotonic()
    home = await_home(tmp_path, "shop", None, lasts_s=4.0, pause=threading.Event().wait, say=print)
    assert home is not None
    assert home.store.generation == 2
    assert time.monotonic() - killed_s > 4.0
    home.close()
