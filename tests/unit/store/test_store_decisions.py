"""Decisions, checkpoints, recoveries, releases and requests in the store, on both databases."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from falkirk.errors import InternalError, StoreError
from falkirk.recovery.decision_store import (
    CheckpointRecord,
    Decision,
    ForgottenEpochs,
    Recovery,
    Release,
    Request,
    Store,
)
from falkirk.theory.ids import CheckpointNumber, LogId, Offset
from falkirk.theory.offsets import PartitionRange
from tests.stores import Place, void_range


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """A new store whose clock returns 1.5, 2.5, …"""
    ticks = itertools.count(1)
    opened = place.open(clock=lambda: next(ticks) + 0.5)
    yield opened
    opened.close()


def test_times_are_the_clocks(store: Store) -> None:
    store.open_incarnation("a", -1)
    store.record_decision("epoch", "w", 0, None)
    assert store.incarnations("a")[0].opened_at_s == 1.5
    assert store.decisions("epoch", "w")[0].made_at_s == 2.5


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_a_decision_is_made_once(store: Store, place: Place) -> None:
    content = {"cut": {"1": 7, "0": 3}, "late": [1.5, None, True, "ü"]}
    assert store.decision("epoch", "words", 4) is None
    store.record_decision("epoch", "words", 4, content)
    store.record_decision("epoch", "words", 4, {"late": [1.5, None, True, "ü"], "cut": {"0": 3, "1": 7}})  # the same
    made = Decision(kind="epoch", name="words", number=4, content=content, made_at_s=1.5)
    assert store.decision("epoch", "words", 4) == made
    for other in ({**content, "late": []}, {}, None, [content], 4):
        with pytest.raises(StoreError) as caught:
            store.record_decision("epoch", "words", 4, other)
        assert caught.value.condition == "DECISION_CONTRADICTED"
        assert caught.value.certainty == "definitely"
        assert (caught.value.parameters["known"], caught.value.parameters["asked"]) == (content, other)
    again = place.open()
    assert again.decisions("epoch", "words") == (made,)
    again.close()


def test_decisions_are_told_apart_by_kind_name_and_number(store: Store) -> None:
    keys = [(k, n, i) for k in ("epoch", "view") for n in ("a", "A", "a ") for i in (-1, 0, 2, 10)]
    for kind, name, number in reversed(keys):
        store.record_decision(kind, name, number, [kind, name, number])
    for kind, name, number in keys:
        decision = store.decision(kind, name, number)
        assert decision is not None
        assert decision.content == [kind, name, number]
    assert [d.number for d in store.decisions("view", "A")] == [-1, 0, 2, 10]
    newest = store.newest_decision("epoch", "a ")
    assert newest is not None
    assert newest.number == 10
    assert store.newest_decision("epoch", "b") is None
    assert store.decisions("cut", "a") == ()


def test_of_contradicting_decisions_made_at_once_one_holds(place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    conditions = set()

    def decide(writer: int) -> list[int]:
        held = []
        for number in range(10):
            try:
                stores[writer].record_decision("epoch", "w", number, writer)
                held.append(number)
            except StoreError as error:
                conditions.add(error.condition)
        return held

    with ThreadPoolExecutor(4) as pool:
        held = list(pool.map(decide, range(4)))
    assert sorted(n for own in held for n in own) == list(range(10))
    assert conditions == {"DECISION_CONTRADICTED"}
    assert all(d.number in held[d.content] for d in stores[0].decisions("epoch", "w"))
    for opened in stores:
        opened.close()


@pytest.mark.parametrize("content", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_what_is_no_json_is_not_written(store: Store, content: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        store.record_decision("epoch", "w", 0, content)
    assert store.decisions("epoch", "w") == ()


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_checkpoints_come_oldest_first_from_any_on_and_are_recorded_once(store: Store) -> None:
    for number in (3, 1, 7, 5, -1):
        store.add_checkpoint("rank", number, {"delivered": {"links": [number, 50]}})
        store.add_checkpoint("other", number, None)
    store.add_checkpoint("rank", 3, {"delivered": {"links": [3, 50]}})
    assert [c.number for c in store.checkpoints("rank")] == [-1, 1, 3, 5, 7]
    assert [c.number for c in store.checkpoints("rank", 3)] == [3, 5, 7]
    assert store.checkpoints("rank")[2] == CheckpointRecord(
        processor="rank", number=3, made_at_s=1.5, metadata={"delivered": {"links": [3, 50]}}
    )
    with pytest.raises(StoreError) as caught:
        store.add_checkpoint("rank", 3, {"delivered": {"links": [4, 50]}})
    assert caught.value.condition == "DECISION_CONTRADICTED"
    assert store.checkpoints("rank", 3)[0].metadata == {"delivered": {"links": [3, 50]}}


def test_epochs_are_forgotten_below_a_number_with_their_checkpoints(store: Store) -> None:
    for number in range(4):
        for name in ("rank", "other"):
            store.record_decision("epoch", name, number, None)
            store.add_checkpoint(name, number, None)
    store.record_decision("view", "rank", 0, None)
    store.forget_epochs("epoch", "rank", 2)
    assert [d.number for d in store.decisions("epoch", "rank")] == [2, 3]
    assert [c.number for c in store.checkpoints("rank")] == [2, 3]
    assert len(store.decisions("epoch", "other")) == len(store.checkpoints("other")) == 4
    assert len(store.decisions("view", "rank")) == 1


def test_a_sum_of_forgotten_epochs_stays_without_the_void_ones(store: Store) -> None:
    for number in range(6):
        store.record_decision("epoch", "rank", number, None)
        store.add_checkpoint("rank", number, {"rows": 10**number})
    void_range(store, LogId.of_epochs("rank"), 0, Offset(1), Offset(2))
    assert store.forgotten_epochs("rank") is None
    store.forget_epochs("epoch", "rank", 2)
    assert store.forgotten_epochs("rank") == ForgottenEpochs(first=0, below=2, epochs=1, rows=1)
    store.forget_epochs("epoch", "rank", 2)
    store.forget_epochs("epoch", "rank", 4)
    assert store.forgotten_epochs("rank") == ForgottenEpochs(first=0, below=4, epochs=3, rows=1101)
    store.record_decision("program", "epochs of rank", 0, None)
    store.forget_epochs("program", "epochs of rank", 1)
    assert store.forgotten_epochs("epochs of rank") is None


def test_a_sum_says_which_epochs_an_earlier_version_forgot(store: Store) -> None:
    store.record_decision("epoch", "rank", 7, None)
    store.add_checkpoint("rank", 7, {"rows": 3})
    store.forget_epochs("epoch", "rank", 8)
    assert store.forgotten_epochs("rank") == ForgottenEpochs(first=7, below=8, epochs=1, rows=3)


def test_more_may_become_known_of_a_checkpoint(store: Store) -> None:
    store.add_checkpoint("rank", 3, {"state": None})
    store.replace_checkpoint("rank", 3, {"state": None}, {"state": "3-s"})
    store.replace_checkpoint("rank", 3, {"state": None}, {"state": "3-s"})
    for number, known in ((3, {"state": None}), (4, {"state": None}), (3, {"state": "other"})):
        with pytest.raises(StoreError) as caught:
            store.replace_checkpoint("rank", number, known, {"state": "late"})
        assert caught.value.condition == "DECISION_CONTRADICTED"
    assert [(c.number, c.made_at_s, c.metadata) for c in store.checkpoints("rank")] == [(3, 1.5, {"state": "3-s"})]


def test_the_oldest_retained_checkpoint_replaces_the_last(store: Store) -> None:
    assert store.retained_from("a") is store.retained_from("b") is None
    store.retain_from("b", CheckpointNumber(3))
    store.retain_from("a", CheckpointNumber(-1))
    store.retain_from("b", CheckpointNumber(4))
    assert (store.retained_from("a"), store.retained_from("b")) == (-1, 4)


# -- recoveries --------------------------------------------------------------------------------------------------------


def test_a_recovery_goes_forward_and_comes_one_at_a_time(store: Store, place: Place) -> None:
    assert store.newest_recovery() is None
    assert store.unfinished_recovery() is None
    assert store.open_recovery("region counts failed", {"counts": 7, "rank": None, "new": -1}) == 1
    with pytest.raises(StoreError) as caught:
        store.open_recovery("another", {})
    assert (caught.value.condition, caught.value.parameters["recovery"]) == ("RECOVERY_UNFINISHED", 1)
    again = place.open()  # after a crash, the next coordinator finds the decision
    assert again.unfinished_recovery() == Recovery(
        recovery=1,
        reason="region counts failed",
        decided={"counts": 7, "rank": None, "new": -1},
        state="decided",
        begun_at_s=1.5,
        ended_at_s=None,
    )
    again.close()
    store.advance_recovery(1, "decided")
    store.advance_recovery(1, "restored")
    with pytest.raises(StoreError):
        store.open_recovery("another", {})
    store.advance_recovery(1, "done")
    done = store.newest_recovery()
    assert done is not None
    assert (done.state, done.ended_at_s) == ("done", 2.5)
    store.advance_recovery(1, "done")
    assert store.newest_recovery() == done
    assert store.unfinished_recovery() is None
    assert store.open_recovery("another", {}) == 2
    unfinished = store.unfinished_recovery()
    assert unfinished is not None
    assert unfinished.recovery == 2


def test_a_recovery_and_what_it_voids_are_decided_together_or_not_at_all(store: Store) -> None:
    assert store.open_recovery("x", {}, voids=[("hop", 0, 3, 9), ("hop", 1, 4, 4), ("other", 0, 0, 1)]) == 1
    for voids, error in (([("hop", 2, 0, 5)], StoreError), ([("hop", 2, 0, 5), ("hop", 2, 5, 4)], InternalError)):
        with pytest.raises(error):
            store.open_recovery("y", {}, voids=voids)
        if error is StoreError:
            store.advance_recovery(1, "done")
    assert store.voided_ranges("hop") == (PartitionRange(partition=0, first=3, last_exclusive=9),)
    assert len(store.voided_ranges("other")) == 1
    assert store.unfinished_recovery() is None


@pytest.mark.parametrize(("known", "asked"), [("restored", "decided"), ("done", "restored"), ("done", "decided")])
def test_a_recovery_never_goes_back(store: Store, known: str, asked: str) -> None:
    number = store.open_recovery("x", {})
    store.advance_recovery(number, known)
    before = store.newest_recovery()
    with pytest.raises(InternalError) as caught:
        store.advance_recovery(number, asked)
    assert caught.value.condition == "RECOVERY_BACKWARDS"
    assert (caught.value.parameters["known"], caught.value.parameters["asked"]) == (known, asked)
    assert store.newest_recovery() == before
    with pytest.raises(InternalError):
        store.advance_recovery(number + 1, asked)


def test_of_recoveries_opened_at_once_one_is(place: Place) -> None:
    stores = [place.open() for _ in range(4)]

    def begin(opened: Store) -> str:
        try:
            return str(opened.open_recovery("x", {}))
        except StoreError as error:
            return error.condition

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(begin, stores)) == ["1", *["RECOVERY_UNFINISHED"] * 3]
    for opened in stores:
        opened.close()


# -- releases ----------------------------------------------------------------------------------------------------------


def test_a_release_only_moves_forward(store: Store) -> None:
    assert store.releases("answers") == ()
    store.record_release("answers", "held", 0, 5)
    store.record_release("answers", "held", 0, 5)
    store.record_release("answers", "held", 10, 1)
    store.record_release("answers", "held", 2, 1)
    store.record_release("answers", "held", 0, 9)
    store.record_release("other", "held", 0, 1)
    with pytest.raises(InternalError) as caught:
        store.record_release("answers", "held", 0, 8)
    assert caught.value.condition == "RELEASE_BACKWARDS"
    assert (caught.value.parameters["known"], caught.value.parameters["asked"]) == (9, 8)
    assert store.releases("answers") == tuple(
        Release(topic="held", partition=p, released_exclusive=o) for p, o in ((0, 9), (2, 1), (10, 1))
    )


def test_the_ends_of_a_sink_are_those_of_its_last_release(store: Store) -> None:
    assert store.ends_after_release("out") == {}
    store.record_release("answers", "held", 0, 5, ends={"out": {0: 7, 1: 2}, "copy": {0: 1}})
    store.record_release("answers", "held", 1, 9, ends={"out": {0: 8, 1: 2}})
    store.record_release("answers", "held", 1, 10)
    assert (store.ends_after_release("out"), store.ends_after_release("copy")) == ({0: 8, 1: 2}, {0: 1})


# -- requests ----------------------------------------------------------------------------------------------------------


def test_requests_are_taken_in_order_and_answered(store: Store, place: Place) -> None:
    assert store.take_request("rollback") is None
    assert store.post_request("rollback", {"to": "weights@119"}) == 1
    assert store.post_request("rollback", None) == 2
    assert store.take_request("stop") is None
    command = place.open()  # another process: the command that sent the request
    first = store.take_request("rollback")
    assert first == Request(request=1, kind="rollback", arguments={"to": "weights@119"}, state="taken", answer=None)
    assert command.request(1) == first
    store.answer_request(1, {"undone": ["rank"]})
    store.answer_request(1, {"undone": ["rank"]})
    answered = command.request(1)
    assert answered is not None
    assert (answered.state, answered.answer) == ("done", {"undone": ["rank"]})
    second = store.take_request("rollback")
    assert second is not None
    assert second.request == 2
    store.answer_request(2, "no", failed=True)
    failed = command.request(2)
    assert failed is not None
    assert (failed.state, failed.answer) == ("failed", "no")
    assert store.take_request("rollback") is None
    assert command.request(3) is None
    command.close()


def test_a_request_out_of_hand_is_not_answered(store: Store) -> None:
    store.post_request("stop", None)

    def refused(request: int, answer: object) -> object:
        with pytest.raises(StoreError) as caught:
            store.answer_request(request, answer)
        assert caught.value.condition == "REQUEST_NOT_TAKEN"
        return caught.value.parameters["found"]

    assert refused(1, "early") == "open"
    assert refused(2, "none") == "unknown"
    store.take_request("stop")
    store.answer_request(1, "yes")
    assert refused(1, "no") == "done"
    request = store.request(1)
    assert request is not None
    assert (request.state, request.answer) == ("done", "yes")


def test_what_a_dead_coordinator_had_in_hand_is_failed_and_the_rest_left(store: Store) -> None:
    for kind in ("a", "a", "a", "a", "b"):
        store.post_request(kind, None)
    for kind in ("a", "a", "a", "b"):
        store.take_request(kind)
    store.answer_request(2, "yes")
    store.fail_taken("a", "the coordinator was killed")
    store.fail_taken("a", "again")
    found = [store.request(n) for n in (1, 2, 3, 4, 5)]
    assert [(r.state, r.answer) for r in found if r is not None] == [
        ("failed", {"reason": "the coordinator was killed"}),
        ("done", "yes"),
        ("failed", {"reason": "the coordinator was killed"}),
        ("open", None),
        ("taken", None),
    ]
    with pytest.raises(StoreError):  # the former coordinator was only slow
        store.answer_request(1, "done after all")


def test_each_request_is_taken_once_by_several_takers(place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    for number in range(30):
        stores[0].post_request("x", number)

    def take(opened: Store) -> list[int]:
        own = []
        while (request := opened.take_request("x")) is not None:
            own.append(request.arguments)
        return own

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(take, stores))
    assert sorted(n for own in taken for n in own) == list(range(30))
    assert all(own == sorted(own) for own in taken)
    for opened in stores:
        opened.close()


def test_requests_posted_at_once_get_numbers_of_their_own(place: Place) -> None:
    stores = [place.open() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        numbers = list(pool.map(lambda s: [s.post_request("x", None) for _ in range(10)], stores))
    assert sorted(n for own in numbers for n in own) == list(range(1, 31))
    for opened in stores:
        opened.close()


def test_the_first_decisions_of_a_kind_by_name(store: Store) -> None:
    store.record_decision("topic", "a", 0, {"id": "x"})
    store.record_decision("topic", "b", 0, {"id": "y"})
    store.record_decision("topic", "b", 1, {"id": "z"})
    store.record_decision("other", "a", 0, {})
    assert store.decisions_of("topic") == {"a": {"id": "x"}, "b": {"id": "y"}}
