"""Rollbacks that the page asks for: consent, one at a time, and the lock of the home. No Spark, and no broker."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import FalkirkError
from falkirk.recovery.protocol.consistent_cuts import ConsistentCut
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.user_tools.commands.dashboard import watch as module
from falkirk.user_tools.commands.dashboard.consent import Consented
from tests.unit.dashboard.conftest import Stage
from tests.unit.protocol.test_rollback_example import upto


def test_a_rollback_needs_a_running_application(looked: Stage) -> None:
    with pytest.raises(FalkirkError, match="it does not run") as refused:
        looked.watch.roll_back("1", force=False, shown=agreed())
    assert refused.value.condition == "ROLLBACK_NEEDS_COMMAND"


def agreed(**outside: int) -> Consented:
    """Return the effect that a page showed at the time of `Clock`."""
    return Consented(checkpoints={"sales": 1}, outside=outside, at_s=1001.0)


@pytest.fixture
def outside(looked: Stage) -> dict[str, int]:
    """The results that a rollback to cut 1 contradicts; `sales` goes to checkpoint 1."""
    found: dict[str, int] = {}
    looked.write()
    moves = [SimpleNamespace(region="sales", to=SimpleNamespace(number=1))]
    sales = Checkpoint(number=1, read=upto("in", 2), sent=upto("out", 2), made_at_s=1000.0)
    cut = ConsistentCut(checkpoints={"sales": sales}, at_s=1000.0, first_number=1, first_at_s=1000.0)
    looked.visits.found = {
        "cuts": lambda: (cut,), "preview": lambda asked: SimpleNamespace(outside=found, moves=moves),
    }  # fmt: skip
    return found


def test_one_rollback_at_a_time_and_published_results_need_consent(
    looked: Stage, outside: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    outside["sales"] = 5

    def ask(store: object, wanted: object, *, force: bool, **more: object) -> SimpleNamespace:
        with pytest.raises(FalkirkError, match="another rollback is in progress"):
            looked.watch.roll_back("2", force=True, shown=agreed())
        asked.append((wanted, force))
        return SimpleNamespace(goes={"sales": 1}, is_earlier=False)

    monkeypatch.setattr(module, "ask_for_rollback", ask)
    with pytest.raises(FalkirkError) as refused:
        looked.watch.roll_back("1", force=False, shown=agreed(sales=5))
    assert refused.value.condition == "CONTRADICTS_RELEASED"
    assert looked.watch.roll_back("1", force=True, shown=agreed(sales=5)) == {"goes": {"sales": 1}}
    outside.clear()
    assert looked.watch.roll_back("1", force=False, shown=agreed()) == {"goes": {"sales": 1}}
    assert asked == [({"sales": 1}, True), ({"sales": 1}, False)]


def test_a_rollback_that_was_carried_out_before_is_not_taken_for_a_new_one(
    looked: Stage, outside: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former page asked for it, and lost the answer. The preview is that of the state since."""
    earlier = SimpleNamespace(goes={"sales": 1}, is_earlier=True)
    monkeypatch.setattr(module, "ask_for_rollback", lambda *_, **__: earlier)
    with pytest.raises(FalkirkError) as refused:
        looked.watch.roll_back("1", force=False, shown=agreed())
    assert refused.value.condition == "PREVIEW_OUTDATED"
    assert "it was carried out before" in refused.value.message


def test_a_consent_is_to_what_was_shown(
    looked: Stage, outside: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ask_for_rollback", lambda *_, **__: pytest.fail("it was asked for"))
    outside |= {"sales": 5, "vouchers": 1}
    with pytest.raises(FalkirkError) as refused:
        looked.watch.roll_back("1", force=True, shown=agreed(sales=5))
    assert refused.value.condition == "PREVIEW_OUTDATED"


class LockedStore:
    """A store that notes, at each use, whether a lock is held. Its request is answered at the second look."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.uses, self.looks = lock, list[bool](), 0

    def is_held(self) -> bool:
        """Return whether a thread holds the lock, as another thread finds it."""
        found: list[bool] = []

        def look() -> None:
            if free := self.lock.acquire(blocking=False):
                self.lock.release()
            found.append(not free)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found[0]

    def join_request(self, kind: str, content: object, same: object) -> tuple[int, bool]:
        self.uses.append(self.is_held())
        return 1, False

    def note_seen(self, number: int) -> None:
        self.uses.append(self.is_held())

    def request(self, number: int) -> Any:
        self.uses.append(self.is_held())
        self.looks += 1
        return SimpleNamespace(state="done" if self.looks > 1 else "open", answer={"goes": {"sales": 1}})

    def newest_recovery(self) -> None:
        self.uses.append(self.is_held())


def test_the_home_is_only_used_under_the_lock_and_waits_do_not_hold_it(looked: Stage, outside: dict[str, int]) -> None:
    store, waits = LockedStore(looked.visits.lock), list[bool]()
    looked.visits.store = store
    looked.clock.meanwhile = lambda: waits.append(store.is_held())
    assert looked.watch.roll_back("1", force=False, shown=agreed()) == {"goes": {"sales": 1}}
    looked.clock.advance(10.0)
    looked.watch.turn()
    assert store.uses == [True] * 5
    assert waits == [False]
