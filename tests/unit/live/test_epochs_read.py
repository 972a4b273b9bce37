"""The notes of a region about the epochs of views that its records may have read."""

import pytest

from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.layout import Layout, Stage, TimeDomain
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.rollback import decide_rollback
from falkirk.runtime.spark.live.epochs_read import EpochsRead, as_positions
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import INITIAL, BatchId, CheckpointNumber, EpochNumber, LogId

VIEW, OTHER = LogId("epochs:prices"), LogId("epochs:ranks")


def note(of: EpochsRead, since: int, **epochs: int) -> None:
    of.note(BatchId(since), {LogId(f"epochs:{name}"): EpochNumber(number) for name, number in epochs.items()})


def test_a_checkpoint_has_read_what_was_noted_for_it_and_before(store: Store) -> None:
    notes = EpochsRead("priced", store, (VIEW, OTHER))
    assert notes.upto(5) == {}
    note(notes, 0, prices=0)
    note(notes, 0, prices=1)
    note(notes, 2, prices=4, ranks=1)
    assert [notes.upto(n) for n in (-1, 0, 1)] == [{}, {VIEW: 1}, {VIEW: 1}]
    assert notes.upto(2) == notes.upto(9) == {VIEW: 4, OTHER: 1}
    assert EpochsRead("other", store, (VIEW, OTHER)).upto(9) == {}


def test_results_between_two_checkpoints_have_read_one_of_the_epochs_that_were_newest_meanwhile(store: Store) -> None:
    notes = EpochsRead("priced", store, (VIEW, OTHER))
    assert notes.between(0, None) == {}
    for since, epoch in ((0, 0), (2, 3), (2, 4), (5, 7)):
        note(notes, since, prices=epoch)
    assert notes.between(-1, 0) == {VIEW: (0,)}
    assert notes.between(0, 1) == {VIEW: (0,)}
    assert notes.between(1, 2) == {VIEW: (0, 3, 4)}
    assert notes.between(2, 4) == {VIEW: (4,)}
    assert notes.between(4, 5) == {VIEW: (4, 7)}
    assert notes.between(5, None) == {VIEW: (7,)}
    note(notes, 3, prices=6)  # a restart from checkpoint 2: records after it may have read an epoch twice
    assert notes.between(2, 3) == {VIEW: (4, 6)}
    assert notes.between(3, None) == {VIEW: (6,)}


def test_the_notes_are_read_once_for_results_between_two_checkpoints(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, read, asked = EpochsRead("priced", store, (VIEW, OTHER)), Store.decisions, list[str]()
    note(notes, 1, prices=3)
    monkeypatch.setattr(Store, "decisions", lambda self, kind, *a: (asked.append(kind), read(self, kind, *a))[1])
    assert notes.between(1, 2) == {VIEW: (3,)}
    assert len(asked) == 1


def test_notes_for_checkpoints_that_were_taken_back_do_not_count(store: Store) -> None:
    notes = EpochsRead("priced", store, (VIEW, OTHER))
    for since, epoch in ((0, 0), (1, 3), (2, 7)):
        note(notes, since, prices=epoch)
    note(notes, 1, prices=2)  # a restart from checkpoint 0, after a rollback of the view
    assert [notes.upto(n) for n in (0, 1, 2, 3)] == [{VIEW: 0}, {VIEW: 2}, {VIEW: 2}, {VIEW: 2}]


def test_what_was_read_since_a_checkpoint_is_compared_with_what_stays(store: Store) -> None:
    notes = EpochsRead("priced", store, (VIEW, OTHER))
    for since, epoch in ((0, 0), (1, 3), (2, 7)):
        note(notes, since, prices=epoch)
    assert notes.are_within(2, {VIEW: 8})
    assert not notes.are_within(2, {VIEW: 7})
    assert notes.are_within(2, {VIEW: float("inf")})
    assert not notes.are_within(0, {VIEW: 4})


def test_views_of_a_former_program_do_not_count(store: Store) -> None:
    note(EpochsRead("priced", store, (VIEW, OTHER)), 0, prices=1, ranks=7)
    now = EpochsRead("priced", store, (VIEW,))
    assert now.upto(0) == {VIEW: 1}
    assert now.are_within(0, {VIEW: 2})


def test_notes_that_no_checkpoint_needs_are_deleted(store: Store) -> None:
    notes = EpochsRead("priced", store, (VIEW, OTHER))
    for since, epoch in ((0, 0), (1, 3), (1, 4), (5, 7)):
        note(notes, since, prices=epoch)
    notes.keep_from(3)
    assert [notes.upto(n) for n in (3, 4, 5)] == [{VIEW: 4}, {VIEW: 4}, {VIEW: 7}]
    assert len(store.decisions("epochs of views", "priced")) == 2


def test_a_region_goes_back_with_its_view(store: Store) -> None:
    """Figure 6 takes a region back behind the epochs that are void, and leaves one that has not read them."""
    prices = Stage(name="prices", inputs=(LogId("offers"),), output=VIEW, times=TimeDomain.EPOCHS)
    priced = Stage(name="priced", inputs=(LogId("orders"), VIEW), output=LogId("out"), views=(VIEW,))
    layout = Layout(
        stages={"prices": prices, "priced": priced},
        partitions={LogId("offers"): 1, VIEW: 1, LogId("orders"): 1, LogId("out"): 1}, held={},
    )  # fmt: skip
    notes = EpochsRead("priced", store, (VIEW, OTHER))
    for since, epoch in ((0, 0), (1, 1), (2, 3)):
        note(notes, since, prices=epoch)

    def live(number: int) -> Checkpoint:
        read = {LogId("orders"): {0: 10 * (number + 1)}} | as_positions(notes.upto(number), 1)  # type: ignore[dict-item]
        return Checkpoint(number=CheckpointNumber(number), read=OffsetFrontier.before(read), sent=EMPTY)

    def complete(number: int) -> Checkpoint:
        read = OffsetFrontier.before({LogId("offers"): {0: number + 1}})  # type: ignore[dict-item]
        return Checkpoint(number=CheckpointNumber(number), read=read, sent=OffsetFrontier.prefix(VIEW, number + 1))

    begin = Checkpoint(number=INITIAL, read=EMPTY, sent=EMPTY)
    checkpoints = {"prices": (begin, *map(complete, range(4))), "priced": (begin, *map(live, range(3)))}
    for asked, goes in ((2, 1), (1, 1), (0, 0)):
        decision = decide_rollback(
            layout, checkpoints, failed=frozenset(), outside={}, asked={"prices": CheckpointNumber(asked)}
        )  # fmt: skip
        assert decision.goes == {"prices": asked, "priced": goes}
    alone = decide_rollback(layout, checkpoints, failed=frozenset({"priced"}), outside={})
    assert alone.goes == {"priced": 2}
