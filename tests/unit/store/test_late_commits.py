"""Late commits: the link to PostgreSQL breaks while COMMIT is on its way, and the server gets it afterwards.

The owner repeats its work. If it read before the late commit, it would decide anew. Then its decision would contradict
the late one, which ends the application although nothing is wrong.
"""

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from falkirk.errors import StoreError
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.engine import Database
from falkirk.recovery.decision_store.values import CountedLetters
from falkirk.theory.ids import Offset
from falkirk.theory.objective import Measurements
from tests.postgres import Postgres
from tests.stores import RECORD, copy_of, state_file, tail, void_range
from tests.support import outcome, wait_until
from tests.unit.store.test_store_generation import prepare
from tests.wires import Wire

#: For each method that reads: a write that changes its answer.
CHANGES: dict[str, tuple[Callable[[Store], Any], Callable[[Store], Any]]] = {
    "region": (lambda s: s.create_region("new", RECORD, {}), lambda s: s.region("new")),
    "region_names": (lambda s: s.create_region("new", RECORD, {}), lambda s: s.region_names()),
    "is_unsafe_since": (
        lambda s: s.end_incarnation("counts", 1, ended="an error", unsafe=True),
        lambda s: s.is_unsafe_since("counts", 1),
    ),
    "incarnations": (lambda s: s.open_incarnation("counts", 3), lambda s: len(s.incarnations("counts"))),
    "tails": (lambda s: s.observe_tail("counts", tail(3, 9)), lambda s: s.tails("counts")),
    "distrusted": (lambda s: s.distrust("counts", 1, "torn"), lambda s: s.distrusted("counts")),
    "marks": (
        lambda s: s.record_marks("counts", [({"hop": {0: 1}}, {"counts": {0: 2}})]),
        lambda s: s.marks("counts"),
    ),
    "measurements": (
        lambda s: s.record_measurements("counts", Measurements(restart_s=2.0)),
        lambda s: s.measurements("counts"),
    ),
    "counted_letters": (
        lambda s: s.record_counted_letters("counts", CountedLetters(topic="dead", count=9, positions={0: Offset(9)})),
        lambda s: s.counted_letters("counts"),
    ),
    "skipped_input": (lambda s: s.skip_input("counts", ((0, 1, 2),)), lambda s: s.skipped_input("counts")),
    "fences": (
        lambda s: s.record_fence("counts", 1, fence={"counts": {0: 9}}),
        lambda s: s.fences("counts"),
    ),
    "releases": (lambda s: s.record_release("answers", "held", 0, 9), lambda s: s.releases("answers")),
    "ends_after_release": (
        lambda s: s.record_release("answers", "held", 0, 9, ends={"out": {0: 1}}),
        lambda s: s.ends_after_release("out"),
    ),
    "voided_ranges": (
        lambda s: void_range(s, "hop", 0, 1, 2),
        lambda s: s.voided_ranges("hop"),
    ),
    "decision": (lambda s: s.record_decision("epoch", "w", 0, "late"), lambda s: s.decision("epoch", "w", 0)),
    "decisions": (lambda s: s.record_decision("epoch", "w", 0, "late"), lambda s: s.decisions("epoch", "w")),
    "decisions_of": (lambda s: s.record_decision("shape", "w", 0, "late"), lambda s: s.decisions_of("shape")),
    "newest_decision": (
        lambda s: s.record_decision("epoch", "words", 2, "late"),
        lambda s: s.newest_decision("epoch", "words"),
    ),
    "checkpoints": (lambda s: s.add_checkpoint("rank", 2, {}), lambda s: s.checkpoints("rank")),
    "checkpoint_copies": (
        lambda s: s.record_copy("counts", copy_of(2), [state_file(2)], []),
        lambda s: s.checkpoint_copies("counts"),
    ),
    "state_files": (
        lambda s: s.record_copy("counts", copy_of(2), [state_file(2)], []),
        lambda s: s.state_files("counts"),
    ),
    "forgotten_epochs": (
        lambda s: s.forget_epochs("epoch", "words", 2),
        lambda s: s.forgotten_epochs("words"),
    ),
    "retained_from": (lambda s: s.retain_from("rank", 1), lambda s: s.retained_from("rank")),
    "newest_recovery": (lambda s: s.advance_recovery(1, "done"), lambda s: s.newest_recovery()),
    "unfinished_recovery": (lambda s: s.advance_recovery(1, "done"), lambda s: s.unfinished_recovery()),
    "is_asked": (lambda s: s.take_request("rollback"), lambda s: s.is_asked("rollback")),
    "request": (lambda s: s.answer_request(2, {}), lambda s: s.request(2)),
    "lease": (lambda s: s.take_lease("next", s.lease(), 9.0), lambda s: s.lease()),
    "waiting": (lambda s: s.take_lease("next", s.lease(), 9.0, key="mine"), lambda s: s.waiting()),
    "require_charge": (lambda s: s.take_lease("next", s.lease(), 9.0), lambda s: _refusal(s.require_charge)),
}
#: Methods that read and write.
OTHERS = {"forget_waiting", "note_waiting", "signing_key", "take_request"}


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except StoreError as error:
        return error.condition
    return ""


def test_no_method_that_reads_is_missing_above() -> None:
    methods = dict(inspect.getmembers(Store, inspect.isfunction))
    asks = {"_reading", "_rows", "_decisions", "decision", "newest_recovery"}
    found = {n for n, method in methods.items() if n[0] != "_" and asks & {*method.__code__.co_names}}
    assert found == {*CHANGES} | OTHERS


class Late:
    """A store whose last commit is on its way to the server, while the store has lost the answer."""

    def __init__(self, wire: Wire, url: str, direct: str, tag: str, write: Callable[[Store], Any]) -> None:
        self._wire, self._direct, self.tag = wire, direct, tag
        self.store = Store(url, identity=tag)
        self.generation = self.store.take_charge("the owner")
        prepare(self.store)
        self.store.add_checkpoint("words", 1, {"rows": 3})
        self.store.before_commits(lambda: wire.break_at(b"COMMIT\0", "late"))
        with pytest.raises(StoreError) as caught:
            write(self.store)
        self.store.before_commits(lambda: None)
        assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", "maybe")

    def outcome_of(self, call: Callable[[], Any]) -> Any:
        """Let the commit arrive once the call waits for it, or has returned; return the result of the call."""
        with ThreadPoolExecutor(1) as pool, Store(self._direct, identity=self.tag)._database.engine.connect() as db:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            under_way = pool.submit(outcome, call)
            wait_until(lambda: under_way.done() or db.exec_driver_sql(waiting).first(), 60, "the call")
            self._wire.deliver()
            return under_way.result(60)


@pytest.fixture
def late(wire: tuple[Wire, str], postgres: Postgres, tag: str) -> Iterator[Callable[[Callable[[Store], Any]], Late]]:
    """Make a store whose last commit is late."""
    stores: list[Late] = []

    def make(write: Callable[[Store], Any]) -> Late:
        stores.append(Late(*wire, postgres.url(), tag, write))
        return stores[-1]

    yield make
    for each in stores:
        each.store.close()


Making = Callable[[Callable[[Store], Any]], Late]


@pytest.mark.parametrize("name", CHANGES)
def test_a_read_waits_for_a_late_commit_and_sees_it(late: Making, name: str) -> None:
    write, read = CHANGES[name]
    made = late(write)
    found = made.outcome_of(lambda: read(made.store))
    assert found == read(made.store), "the commit came after the read"


def decide(store: Store, content: str) -> str:
    """Decide unless a decision is there, as all do who decide; return the decision."""
    known = store.decision("epoch", "w", 0)
    if known is not None:
        return str(known.content)
    store.record_decision("epoch", "w", 0, content)
    return content


@pytest.mark.parametrize(("waits", "expected"), [(True, "first"), (False, "DECISION_CONTRADICTED")])
@pytest.mark.parametrize("next_process", [False, True])
def test_a_decision_made_again_is_the_late_one(
    late: Making,
    monkeypatch: pytest.MonkeyPatch,
    wire: tuple[Wire, str],
    waits: bool,
    expected: str,
    next_process: bool,
) -> None:
    if not waits:
        monkeypatch.setattr(Database, "note_uncertain", lambda self: None)
    made = late(lambda s: decide(s, "first"))
    store = Store(wire[1], identity=made.tag, generation=made.generation) if next_process else made.store
    assert made.outcome_of(lambda: decide(store, "second")) == expected
    made.store.record_decision("epoch", "w", 1, "later")  # the write without an answer is no lost one
    store.close()


def test_a_visitor_does_not_wait(late: Making, wire: tuple[Wire, str]) -> None:
    """A status must come also while a writer stands still."""
    made = late(lambda s: decide(s, "first"))
    visitor = Store(wire[1], identity=made.tag)
    assert visitor.decision("epoch", "w", 0) is None
    visitor.close()
