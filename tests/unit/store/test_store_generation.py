"""Generation: the database refuses writes of a former owner of the home, in any order of the two owners' writes."""

import inspect
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from falkirk.errors import StoreError
from falkirk.recovery.decision_store import Store, TailRecord
from falkirk.recovery.decision_store.logs import record_void
from falkirk.recovery.decision_store.own_writes import OwnWrites
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.values import CountedLetters
from falkirk.theory.ids import BatchId, LogId, Offset
from falkirk.theory.objective import Measurements
from tests.stores import RECORD, Place, contents, copy_of, state_file
from tests.support import outcome, wait_until

#: As many dead letters as a former owner has counted.
LETTERS = CountedLetters(topic="dead", count=9, positions={0: Offset(9)})
WRITES: dict[str, Callable[[Store], Any]] = {
    "create_region": lambda s: s.create_region("new", RECORD, {"counts": {0: 1}}),
    "grow_region": lambda s: s.grow_region("counts", replace(RECORD, start_offsets={})),
    "open_incarnation": lambda s: s.open_incarnation("counts", 3),
    "record_fence": lambda s: s.record_fence("counts", 1, fence={}),
    "end_incarnation": lambda s: s.end_incarnation("counts", 1, ended="by the former", unsafe=True),
    "observe_tail": lambda s: s.observe_tail("counts", TailRecord(valid_from_commit=1, incarnation=1, positions={})),
    "forget_tails_after": lambda s: s.forget_tails_after("counts", -2),
    "keep_tails": lambda s: s.keep_tails("counts", [9]),
    "distrust": lambda s: s.distrust("counts", 1, "by the former"),
    "forget_distrust_after": lambda s: s.forget_distrust_after("counts", -2),
    "record_marks": lambda s: s.record_marks("counts", [({"hop": {0: 1}}, {"counts": {0: 2}})]),
    "record_measurements": lambda s: s.record_measurements("counts", Measurements(restart_s=2.0)),
    "record_counted_letters": lambda s: s.record_counted_letters("counts", LETTERS),
    "skip_input": lambda s: s.skip_input("counts", ((0, 1, 2),)),
    "record_release": lambda s: s.record_release("answers", "held", 0, 99, ends={"out": {0: 1}}),
    "record_decision": lambda s: s.record_decision("epoch", "words", 9, "former"),
    "add_checkpoint": lambda s: s.add_checkpoint("rank", 9, {}),
    "replace_checkpoint": lambda s: s.replace_checkpoint("rank", 1, {"n": 1}, {"n": 2}),
    "record_copy": lambda s: s.record_copy("counts", copy_of(9), [state_file(9)], [state_file(1)]),
    "rewind_copies": lambda s: s.rewind_copies("counts", BatchId(-1)),
    "keep_copies": lambda s: s.keep_copies("counts", [BatchId(9)], [state_file(1)]),
    "forget_epochs": lambda s: s.forget_epochs("epoch", "words", 9),
    "retain_from": lambda s: s.retain_from("rank", 9),
    "open_recovery": lambda s: s.open_recovery("former", {}),
    "advance_recovery": lambda s: s.advance_recovery(1, "done"),
    "take_request": lambda s: s.take_request("rollback"),
    "join_request": lambda s: s.join_request("rollback", {"to": "former"}, ("to",)),
    "unseen_request": lambda s: s.unseen_request("rollback", {"to": "former"}, ("to",)),
    "note_seen": lambda s: s.note_seen(1),
    "answer_request": lambda s: s.answer_request(2, {}),
    "fail_taken": lambda s: s.fail_taken("stop", "former"),
    "take_lease": lambda s: s.take_lease("former", s.lease(), 9.0),
    "renew_lease": lambda s: s.renew_lease(),
    "release_lease": lambda s: s.release_lease(),
    "take_charge": lambda s: s.take_charge("former"),
    "await_writers": lambda s: s.await_writers(),
}


def prepare(store: Store) -> None:
    """Write the data that the writes above would change."""
    store.create_region("counts", RECORD, {"counts": {0: 0}})
    store.open_incarnation("counts", 0)
    store.record_decision("epoch", "words", 1, "kept")
    store.add_checkpoint("rank", 1, {"n": 1})
    store.record_copy("counts", copy_of(1), [state_file(1)], [])
    store.open_recovery("a failure", {"rank": 1})
    store.post_request("rollback", {})
    store.post_request("stop", {})
    store.take_request("stop")


def test_every_write_of_a_former_owner_is_refused_and_changes_nothing(place: Place) -> None:
    former, present = place.open(), place.open()
    assert former.take_charge("the former") == 1
    prepare(former)
    assert present.take_charge("the present") == 2
    before = contents(present)
    for name, write in WRITES.items():
        with pytest.raises(StoreError) as caught:
            write(former)
        found = caught.value
        assert (found.condition, found.certainty) == ("HOME_TAKEN_OVER", "definitely"), name
        assert found.parameters == {"generation": 1, "present": 2, "holder": "the present"}, name
    with pytest.raises(StoreError):
        former.require_charge()
    assert contents(present) == before
    assert contents(former) == before, "a former owner may read"
    present.require_charge()
    present.record_decision("epoch", "words", 2, "present")
    former.close()
    present.close()


def test_no_method_that_writes_is_missing_above() -> None:
    """Add each new method there: its writes must be refused too."""
    asks = {"post_request"}  # the sender of a request is not an owner
    methods = {name: method for name, method in inspect.getmembers(Store, inspect.isfunction) if name[0] != "_"}
    found = {name for name, method in methods.items() if "_writing" in method.__code__.co_names}
    assert found == set(WRITES) | asks


def test_a_process_of_the_owner_writes_for_its_generation_and_a_visitor_may_ask(place: Place) -> None:
    coordinator = place.open()
    number = coordinator.take_charge("a coordinator")
    host, visitor = place.open(generation=number), place.open()
    host.record_decision("epoch", "words", 1, "by the host")
    visitor.post_request("stop", {})
    assert coordinator.is_asked("stop")
    assert place.open().take_charge("the next") == number + 1
    visitor.post_request("rollback", {})
    with pytest.raises(StoreError) as caught:
        host.record_decision("epoch", "words", 2, "by the host")
    assert caught.value.parameters["present"] == number + 1
    for store in (coordinator, host, visitor):
        store.close()


def test_a_write_that_is_under_way_is_awaited(place: Place) -> None:
    """Its client may have lost the answer, and would read the state before it."""
    former, present = place.open(), place.open()
    done = threading.Event()

    def wait() -> None:
        present.await_writers()
        done.set()

    waiting = threading.Thread(target=wait, daemon=True)
    with former._writing() as db:
        record_void(db, LogId("hop"), 0, Offset(1), Offset(2))
        waiting.start()
        assert not done.wait(0.3), "another write is under way"
        assert present.voided_ranges("hop") == ()
    waiting.join(60)
    assert done.is_set()
    assert [v.first for v in present.voided_ranges("hop")] == [1]
    former.close()
    present.close()


@pytest.mark.parametrize("fences", [True, False])
def test_nothing_is_written_between_the_comparison_and_the_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch, fences: bool
) -> None:
    """A former owner writes as fast as it can while others take charge; each sees the last write of its predecessor."""
    if not fences:
        monkeypatch.setattr(Part, "_writing", lambda self: self._database.transaction(writes=True))
    former, present = place.open(), place.open()
    number, stopping = former.take_charge("the former"), threading.Event()
    refused: list[str] = []

    def newest() -> int:
        found = present.newest_decision("epoch", "words")
        return -1 if found is None else found.number

    def write() -> None:
        try:
            for n in itertools.takewhile(lambda _: not stopping.is_set(), itertools.count()):
                former.record_decision("epoch", "words", n, "former")
        except StoreError as error:
            refused.append(error.condition)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    wait_until(lambda: newest() > 10, 60, "the former owner to write")
    assert present.take_charge("the present") == number + 1
    seen = newest()
    if not fences:
        wait_until(lambda: newest() > seen, 60, "the former owner to write on: the test sees it")
        stopping.set()
    writer.join(60)
    assert not writer.is_alive()
    assert refused == (["HOME_TAKEN_OVER"] if fences else [])
    assert (newest() == seen) is fences
    former.close()
    present.close()


@pytest.mark.parametrize("counts", [True, False])
def test_two_owners_with_one_generation_do_not_both_write(
    place: Place, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    """Somebody restores the store from before the former owner. So the next owner gets the same number as that one.

    The former owner stood still on another machine, and resumes.
    """
    if not counts:
        monkeypatch.setattr(OwnWrites, "count", lambda self, db: 0)
    former, present = place.open(), place.open()
    former.take_charge("the one before")
    copied = place.execute("SELECT name, value FROM meta")
    former.take_charge("the former")
    former.record_decision("epoch", "words", 0, "of the former")
    rows = ", ".join(f"('{name}', '{value}')" for name, value in copied)
    place.execute(f"DELETE FROM meta; DELETE FROM decisions; INSERT INTO meta VALUES {rows}")
    assert present.take_charge("the present") == former.generation
    present.record_decision("epoch", "words", 0, "of the present")
    refused = outcome(lambda: former.record_decision("epoch", "words", 1, "of the former"))
    assert refused == ("STORE_FELL_BACK" if counts else None)
    assert len(present.decisions("epoch", "words")) == (1 if counts else 2)
    former.close()
    present.close()


def test_of_two_hosts_of_one_owner_the_former_writes_nothing_more(place: Place) -> None:
    """Its coordinator has killed it, so it lives only if the coordinator was wrong."""
    coordinator = place.open()
    number = coordinator.take_charge("the owner")
    former, present = place.open(generation=number), place.open(generation=number)
    for n, host in enumerate((former, present)):
        host.record_decision("epoch", "words", n, "of a host")
    coordinator.record_decision("epoch", "words", 2, "of the coordinator")
    present.record_decision("epoch", "words", 3, "of a host")
    assert outcome(lambda: former.record_decision("epoch", "words", 4, "of a host")) == "STORE_FELL_BACK"
    assert len(place.execute("SELECT name FROM meta WHERE substr(name, 1, 7) = 'writes '")) == 2
    for store in (coordinator, former, present):
        store.close()


def test_a_lower_generation_than_the_own_one_is_an_older_store(place: Place) -> None:
    owner = place.open()
    owner.take_charge("the one before")
    owner.take_charge("the owner")
    before = [(n, v) for n, v in place.execute("SELECT name, value FROM meta") if n == "generation"]
    place.execute(f"UPDATE meta SET value = '{before[0][1].replace('2', '1')}' WHERE name = 'generation'")
    assert outcome(owner.require_charge) == "STORE_FELL_BACK"
    assert outcome(lambda: owner.record_decision("epoch", "words", 0, "again")) == "STORE_FELL_BACK"
    owner.close()
