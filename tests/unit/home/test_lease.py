"""Lease: a waiting process takes over from a dead owner, exactly one of several does, and a living owner keeps it."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import falkirk as fk
from falkirk.declare.load import load_application
from falkirk.errors import DefinitionError, HomeError, StoreError
from falkirk.platform import locks
from falkirk.recovery.decision_store import Lease, Store
from falkirk.recovery.decision_store.postgres import WRITER_S
from falkirk.recovery.ownership.folder import Home, waiting_home
from falkirk.recovery.ownership.lease import LASTS_MIN_S, MARGIN_S, LeaseKeeper, LeaseWatch, await_home, lease_s
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import RunSettings
from tests.postgres import Postgres
from tests.stores import Place
from tests.support import wait_until

LASTS_S = 10.0
#: An owner that renews its lease until it is killed. Machines of tests stood still for five seconds at times.
OWNER = """
import pathlib, signal, sys
from falkirk.recovery.ownership.lease import LeaseKeeper, await_home
home = await_home(pathlib.Path(sys.argv[1]), "shop", None, lasts_s=8.0, pause=lambda s: False, say=print)
with LeaseKeeper(home, 8.0, print):
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
    watch.restart_wait()
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
        found.leased_s = Clock().now_s
        self.clock, self.ends, self.said = Clock(), list[int](), list[str]()
        self.keeper = LeaseKeeper(found, LASTS_S, self.said.append, end=self._end, clock=self.clock)

    def _end(self, code: int, last: Callable[[], None]) -> None:
        self.ends.append(code)
        last()


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
    assert keeping.said[0].split()[0] == "LEASE_LOST"
    keeping.home.close()


def test_the_time_of_a_takeover_counts_for_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To replace the locks of the former owner may take seconds, in which nobody renews the lease."""
    clock, ends = Clock(), list[int]()
    monkeypatch.setattr("falkirk.recovery.ownership.folder.seconds_since_boot", clock)

    def slowly(lock: int, says: str) -> None:
        clock.now_s += LASTS_S

    with waiting_home(tmp_path, "shop") as home:
        assert home.store.take_lease("a former owner", None, LASTS_S)
        monkeypatch.setattr(locks, "write_holder", slowly)
        assert home.take_lease(home.store.lease(), LASTS_S)
        keeper = LeaseKeeper(home, LASTS_S, print, end=lambda code, last: ends.append(code), clock=clock)
        keeper.check()
    assert ends


def test_an_owner_that_was_suspended_while_it_wrote_is_replaced_soon(postgres: Postgres, tmp_path: Path) -> None:
    """The server ends the transaction that keeps others from writing. The wait for this is no part of the new lease.

    Seen in CI: the owner was suspended within a write. Nobody could take over for a minute, and the process that did
    then ended at once, because its lease seemed to be over.
    """
    ends = list[int]()
    with waiting_home(tmp_path, "shop", postgres.url()) as home, ThreadPoolExecutor(1) as pool:
        suspended = Store(postgres.url(), identity=home.identity)
        assert suspended.take_lease("the former owner", None, LASTS_MIN_S)

        def write() -> None:
            with suspended._writing() as db:
                taking = pool.submit(home.take_lease, home.store.lease(), LASTS_MIN_S)
                assert taking.result(3 * WRITER_S)
                LeaseKeeper(home, LASTS_MIN_S, print, end=lambda code, last: ends.append(code)).check()
                db.exec_driver_sql("SELECT 1")  # it resumes

        with pytest.raises(StoreError) as refused:
            write()
        suspended.close()
    assert not ends
    assert (refused.value.condition, refused.value.certainty) == ("STORE_AWAY", "definitely")


def test_a_waiting_process_that_stands_still_does_not_stop_renewals(postgres: Postgres, tag: str) -> None:
    """It stops between two statements of its note, with the transaction open."""
    place = Place(where=postgres.url(), identity=tag)
    owner, waiting = place.open(), place.open()
    assert owner.take_lease("the owner", None, LASTS_S)
    waiting.note_waiting("key", "waits")
    renewed = threading.Event()

    def stand_still() -> float:
        thread = threading.Thread(target=lambda: (owner.renew_lease(), renewed.set()))
        thread.start()
        thread.join(5)
        return time.time()

    waiting._clock = stand_still
    waiting.note_waiting("key", "waits")
    assert renewed.is_set()
    owner.close()
    waiting.close()


@pytest.mark.parametrize("left", [True, False])
def test_an_owner_that_ends_with_an_error_releases_its_lease_after_its_processes(
    left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping, steps = Keeping(tmp_path), list[str]()

    def kill() -> None:
        steps.append("kill")
        if left:
            raise HomeError("LEFTOVER_ALIVE", "one survives")

    monkeypatch.setattr(keeping.home, "kill_leftovers", kill)
    with pytest.raises(ValueError, match="an error"), keeping.keeper:
        raise ValueError("an error")
    lease = keeping.home.store.lease()
    assert lease is not None
    assert (steps, lease.is_kept) == (["kill"], left)
    keeping.home.close()


def test_an_owner_that_stood_still_and_was_replaced_ends(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    # The lock of a machine that is cut off may be free elsewhere, so only the store is asked here.
    successor = waiting_home(tmp_path, "shop")
    assert successor.store.take_lease("successor", successor.store.lease(), LASTS_S)
    keeping.keeper.renew()
    assert keeping.ends
    assert keeping.said[0].split()[0] == "HOME_TAKEN_OVER"
    assert "successor" in keeping.said[0]
    keeping.home.close()
    successor.close()


def test_an_owner_whose_store_fell_back_ends_and_says_why(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    file = tmp_path / "decisions.db"
    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(file)) as live:
        live.backup(copy)
        keeping.keeper.renew()
        assert not keeping.ends
        copy.backup(live)
    keeping.keeper.renew()
    assert keeping.ends
    assert keeping.said[0].split()[0] == "STORE_FELL_BACK"
    keeping.home.close()


@pytest.mark.parametrize("has_lease", [True, False])
def test_the_lock_protects_an_owner_without_a_lease_and_one_that_ends(tmp_path: Path, has_lease: bool) -> None:
    owner = waiting_home(tmp_path, "shop")
    assert owner.take_lease(None, LASTS_S)
    owner.store.release_lease() if has_lease else owner.take_charge()
    waiting = waiting_home(tmp_path, "shop")
    assert not waiting.take_lease(waiting.store.lease(), LASTS_S)
    owner.close()
    assert waiting.take_lease(waiting.store.lease(), LASTS_S)
    waiting.close()


@pytest.mark.parametrize("lease", [3.9, 3_601.0, float("nan"), float("inf"), "10", True])
def test_a_lease_has_a_sensible_length(lease: float) -> None:
    with pytest.raises(DefinitionError) as refused:
        lease_s(wait=True, lease=lease)
    assert refused.value.condition == "LEASE_INVALID"
    assert (lease_s(wait=True, lease=4), lease_s(wait=False, lease=4)) == (4.0, None)


def test_a_process_that_cannot_see_the_store_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, looks = list[str](), list[float]()

    def away(*given: object) -> Home:
        raise StoreError("STORE_AWAY", "the store is away")

    def pause(seconds: float) -> bool:
        looks.append(seconds)
        return len(looks) == 3

    monkeypatch.setattr("falkirk.recovery.ownership.lease.waiting_home", away)
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

            wait_until(is_renewed, 30, "the owner renews its lease")
    finally:
        owner.kill()
        owner.wait()
    killed_s = time.monotonic()
    home = await_home(tmp_path, "shop", None, lasts_s=8.0, pause=threading.Event().wait, say=print)
    assert home is not None
    assert home.store.generation == 2
    assert time.monotonic() - killed_s > 8.0
    home.close()


@pytest.mark.parametrize(
    ("declared", "leased", "found"), [(None, True, True), (None, False, None), (False, True, False)]
)
def test_outputs_under_a_lease_are_fenced_unless_the_application_decides(
    declared: bool | None, leased: bool, found: bool | None, tmp_path: Path
) -> None:
    """An owner on another machine may be suspended when its lease is over, and only the broker refuses its results."""
    file = tmp_path / "shop.py"
    file.write_text(f"import falkirk as fk\napp = fk.App('shop', kafka='127.0.0.1:1', transactional={declared})\n")
    assert load_application(file, leased=leased).transactional is found


PROGRAM = """
import sys
import falkirk as fk
from falkirk.user_tools.commands import run

run.run_in_terminal = lambda app, settings: print(settings.lease_s)
app = fk.App("shop", kafka="127.0.0.1:1")
try:
    app.run({options})
except fk.FalkirkError as error:
    print(error.condition)
"""


@pytest.mark.parametrize(
    ("options", "submitted", "found"),
    [
        ("wait=True", False, "10.0"), ("wait=True, lease=30", False, "30.0"), ("lease=30", False, "None"),
        ("wait=True, lease=1", False, "LEASE_INVALID"), ("wait=True", True, "WAIT_UNSUITABLE"),
    ],
)  # fmt: skip
def test_a_program_of_the_users_takes_the_same_options(
    options: str, submitted: bool, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM.format(options=options))
    done = subprocess.run([sys.executable, str(file)], check=False, capture_output=True, text=True)
    assert done.stdout.strip() == found, done.stderr


def test_a_coordinator_that_was_replaced_touches_nothing_of_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host has died while it stood still. The processes that the home names now are those of the next owner."""
    successor = list[Home]()

    def stood_still(self: Coordinator, home: Home) -> str:
        successor.append(waiting_home(tmp_path, "shop"))
        assert successor[0].store.take_lease("successor", home.store.lease(), LASTS_S)
        successor[0].record_processes((ProcessRecord.of(os.getpid(), "JVM"),), ())
        return "killed by signal 9"

    monkeypatch.setattr(Coordinator, "_run_host", stood_still)
    file = tmp_path / "shop.py"
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path)
    with pytest.raises(StoreError) as replaced:
        Coordinator(app, RunSettings(file=file, standby=False), say=lambda text: None).run()
    assert replaced.value.condition == "HOME_TAKEN_OVER"
    assert (tmp_path / "processes.json").exists()
    successor[0].close()
