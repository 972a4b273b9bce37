"""Planted bugs: each takes away one thing that the protocol rests on. The simulation must find every one."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from falkirk.recovery.protocol import recovery, rollback
from falkirk.recovery.protocol.layout import Layout, cut, source_name
from falkirk.recovery.protocol.marks import Marks
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.watermarks import Watermarks
from falkirk.theory import constraints
from falkirk.theory import rollback as figure_6
from falkirk.theory.frontier import EMPTY, Frontier, OffsetFrontier
from falkirk.theory.metadata import Checkpoints
from falkirk.theory.monitor import Monitor
from falkirk.theory.projection import Cuts, EpochsToSequence
from tests.simulation.region import SimRegion
from tests.simulation.release_bugs import (
    recorded_before_it_is_released,
    released_on_arrival,
    released_without_looking,
    the_sink_is_not_asked,
)
from tests.simulation.world import Fence, World

Patch = pytest.MonkeyPatch


def no_fence(patch: Patch) -> None:
    """A dead incarnation may continue to send after its successor has read the output."""

    def fence(region: SimRegion) -> None:
        region.running, leftover = None, region.running
        if leftover is not None:
            region.lingering.append(leftover)
        region.take_position()

    def rewind(region: SimRegion, number: int) -> None:
        region.saved = {n: s for n, s in region.saved.items() if n <= number}

    patch.setattr(SimRegion, "fence", fence)
    patch.setattr(SimRegion, "rewind", rewind)


def nothing_is_voided(patch: Patch) -> None:
    """Readers read the records that a rollback made invalid."""
    patch.setattr(SimRegion, "beyond", lambda region, number, upto: ())


def voided_by_position(patch: Patch) -> None:
    """All records after φ are voided, also those that the checkpoint has sent and will not send again."""

    def beyond(region: SimRegion, number: int, upto: OffsetFrontier) -> tuple[Any, ...]:
        sent, logs = region.saved[number].sent, region.world.logs
        return tuple((e.topic, e.partition, sent[e], logs[e].end) for e in region._outputs() if sent[e] < logs[e].end)

    patch.setattr(SimRegion, "beyond", beyond)


def voided_before_the_fence(patch: Patch) -> None:
    """The records to void are read while their writer may still add some."""
    before: dict[str, Any] = {}
    fence, beyond = SimRegion.fence, SimRegion.beyond

    def early(region: SimRegion) -> None:
        region.take_position()
        before[region.stage.name] = {n: beyond(region, n, EMPTY) for n in region.saved}
        fence(region)

    patch.setattr(SimRegion, "fence", early)
    patch.setattr(SimRegion, "beyond", lambda region, number, upto: before[region.stage.name].get(number, ()))


def readers_stay(patch: Patch) -> None:
    """Constraint 3 is forgotten: a reader of voided records continues with them."""
    patch.setattr(figure_6, "has_sent_delivered", lambda edge, source, target: True)
    limit = figure_6.Rollback.objections

    def objections(self: figure_6.Rollback, variable: Any, frontier: Any) -> Any:
        return (o for o in limit(self, variable, frontier) if o[0] is not constraints.Constraint.DELIVERED)

    patch.setattr(figure_6.Rollback, "objections", objections)


def newest_checkpoint_whatever_was_decided(patch: Patch) -> None:
    """A region goes back to its newest checkpoint, not to the newest one within its frontier."""
    patch.setattr(rollback, "newest_within", lambda layout, name, checkpoints, frontier: checkpoints[-1])


def swapped_inclusion(patch: Patch) -> None:
    """A region goes back to the oldest checkpoint that its frontier does not hold."""

    def newest_within(layout: Layout, name: str, checkpoints: Any, frontier: Any) -> Any:
        return next((p for p in checkpoints if not layout.metadata(name, p).frontier <= frontier), checkpoints[-1])

    patch.setattr(rollback, "newest_within", newest_within)


def collected_one_too_far(patch: Patch) -> None:
    """The logs between regions are deleted up to one record more than may be."""
    delete = recovery.RecoveryProtocol.collect

    def collect(self: RecoveryProtocol) -> None:
        logs = self._logs

        class OneMore:
            def delete_below(self, topic: str, below: OffsetFrontier) -> None:
                logs.delete_below(topic, OffsetFrontier.of({e: n + 1 for e, n in below.prefixes}))

        self._logs = OneMore()  # type: ignore[assignment]
        try:
            delete(self)
        finally:
            self._logs = logs

    patch.setattr(RecoveryProtocol, "collect", collect)


def collected_without_asking_the_readers(patch: Patch) -> None:
    """The logs between regions are deleted according to their writer's needs alone."""

    def collect(self: RecoveryProtocol) -> None:
        for topic in self.layout.hops:
            writer = self.layout.writer(topic)
            assert writer is not None
            self._logs.delete_below(topic, cut(self.kept(writer.name).sent, self.layout, topic))

    patch.setattr(RecoveryProtocol, "collect", collect)


def acknowledged_by_what_can_be_restored(patch: Patch) -> None:
    """A replay's own input is collected: the watermark for release is used to acknowledge."""

    def acknowledge(self: RecoveryProtocol) -> None:
        for topic in self.layout.sources:
            assert self.watermarks.restorable.low_watermark(source_name(topic)).is_top
            self._logs.acknowledge(topic, self._logs.ends(topic))

    patch.setattr(RecoveryProtocol, "_acknowledge", acknowledge)


def acknowledged_by_the_fastest_reader(patch: Patch) -> None:
    """A source is acknowledged up to the position of one reader, not of all."""

    def acknowledge(self: RecoveryProtocol) -> None:
        for topic in self.layout.sources:
            reads = [self.kept(r.name).read for r in self.layout.readers(topic)]
            self._logs.acknowledge(topic, cut(reduce(lambda a, b: a | b, reads), self.layout, topic))

    patch.setattr(RecoveryProtocol, "_acknowledge", acknowledge)


def cut_off_recovery_is_forgotten(patch: Patch) -> None:
    """An interrupted recovery counts as done."""
    opened = RecoveryProtocol.open

    def forget(self: RecoveryProtocol) -> None:
        unfinished = self._store.unfinished_recovery()
        if unfinished is not None:
            self._store.advance_recovery(unfinished.recovery, "done")
        opened(self)

    patch.setattr(RecoveryProtocol, "open", forget)


def everybody_goes_back(patch: Patch) -> None:
    """A failure moves all regions, as a global snapshot does."""
    recover = RecoveryProtocol.recover

    def all_of_them(self: RecoveryProtocol, failed: frozenset[str], reason: str, **options: Any) -> Any:
        return recover(self, frozenset(self.layout.stages), reason, **options)

    patch.setattr(RecoveryProtocol, "recover", all_of_them)


def released_by_the_wrong_watermark(patch: Patch) -> None:
    """Results wait for the watermark of collection instead of that of release."""
    release = RecoveryProtocol._release

    def by_retained(self: RecoveryProtocol) -> None:
        kept = self.watermarks.restorable
        self.watermarks.restorable = self.watermarks.retained
        try:
            release(self)
        finally:
            self.watermarks.restorable = kept

    patch.setattr(RecoveryProtocol, "_release", by_retained)


def acknowledged_without_the_history(patch: Patch) -> None:
    """Checkpoints are kept for rollbacks on request, but their later input is not."""

    def acknowledge(self: RecoveryProtocol) -> None:
        for topic in self.layout.sources:
            upto = self.watermarks.retained.low_watermark(source_name(topic))
            self._logs.acknowledge(topic, cut(upto, self.layout, topic))  # type: ignore[arg-type]

    patch.setattr(RecoveryProtocol, "_acknowledge", acknowledge)


def late_records_count(patch: Patch) -> None:
    """Records of a killed incarnation count, although they arrived after the fence and were sent again."""
    patch.setattr(World, "is_late", lambda world, e, offset, known: False)


def readers_start_first(patch: Patch) -> None:
    """A reader knows no fence that its writer records in the same recovery."""
    fence, known = SimRegion.fence, SimRegion._fences
    before: dict[str, dict[str, list[Fence]]] = {}

    def remember(region: SimRegion) -> None:
        fence(region)
        before[region.stage.name] = {topic: list(fences) for topic, fences in region.world.fences.items()}

    def as_remembered(region: SimRegion, topic: str) -> list[Fence]:
        is_mine = topic == region.stage.output
        return known(region, topic) if is_mine else before[region.stage.name].get(topic, [])

    patch.setattr(SimRegion, "fence", remember)
    patch.setattr(SimRegion, "_fences", as_remembered)


def a_lost_checkpoint_is_overlooked(patch: Patch) -> None:
    """A recovery voids published results, and other results follow them."""
    patch.setattr(recovery, "refuse_loss", lambda layout, decision, voids: None)


def one_checkpoint_is_kept(patch: Patch) -> None:
    """Nothing is kept to go back to when the newest checkpoint is damaged."""
    new = Watermarks._new

    def all_of_them(self: Watermarks, name: str, checkpoints: Any, upto: dict[str, int], may_lose: int) -> Any:
        return new(self, name, checkpoints, upto, 0 if upto is self._retained_to else may_lose)

    patch.setattr(Watermarks, "_new", all_of_them)


def released_by_a_checkpoint_that_may_be_lost(patch: Patch) -> None:
    """Results wait for their newest checkpoint, though the application asked for a spare one."""
    patch.setattr(Watermarks, "_may_lose", lambda self, name: 0)


def a_newer_checkpoint_counts_as_left(patch: Patch) -> None:
    """A checkpoint that is inconsistent with others counts as the remaining one when the one before it is lost."""

    def new(
        self: Watermarks, name: str, checkpoints: tuple[Checkpoint, ...], upto: dict[str, int], may_lose: int
    ) -> Any:
        for checkpoint in checkpoints[: len(checkpoints) - may_lose]:
            if checkpoint.number > upto.get(name, -2):
                upto[name] = checkpoint.number
                metadata = self.layout.metadata(name, checkpoint)
                if not metadata.frontier.is_empty:
                    yield metadata

    patch.setattr(Watermarks, "_new", new)


def marks_are_forgotten(patch: Patch) -> None:
    """The record of the results that a deterministic region had sent is lost with its checkpoint."""
    patch.setattr(Marks, "take_in", lambda self, name, checkpoints: None)


def cuts_are_not_taken_in(patch: Patch) -> None:
    """The watermarks are not computed again when an epoch is cut."""
    patch.setattr(Monitor, "extend_projection", lambda self, edge: ())


def an_epoch_counts_in_part(patch: Patch) -> None:
    """An epoch stays although a part of its input became invalid."""
    within = Cuts.within

    def begun(self: Cuts, messages: OffsetFrontier) -> int | None:
        whole = within(self, messages)
        return next((e for e in self.epochs if whole is None or e > whole), whole)

    patch.setattr(Cuts, "within", begun)


def epochs_are_numbered_from_one_in_their_log(patch: Patch) -> None:
    """The place of an epoch in its log is taken for one less than it is."""
    sent = EpochsToSequence.sent

    def behind(self: EpochsToSequence, frontier: Frontier) -> Frontier:
        return OffsetFrontier.of({e: n + 1 for e, n in sent(self, frontier).prefixes})  # type: ignore[attr-defined]

    patch.setattr(EpochsToSequence, "sent", behind)


def what_was_drawn_counts_as_fixed(patch: Patch) -> None:
    """The results that any region had sent at a lost checkpoint count as fixed, as if all would send the same again."""
    take_in, saved, decide = Marks.take_in, rollback.saved, rollback.decide_rollback
    sent: dict[str, OffsetFrontier] = {}
    is_asked = [False]

    def remember(self: Marks, name: str, checkpoints: tuple[Checkpoint, ...]) -> None:
        take_in(self, name, checkpoints)
        sent[name] = checkpoints[-1].sent

    def note(*what: Any, asked: Any, **options: Any) -> Any:
        is_asked[0] = bool(asked)
        return decide(*what, asked=asked, **options)

    def as_remembered(layout: Layout, name: str, checkpoints: list[Checkpoint]) -> Checkpoints:
        found = saved(layout, name, checkpoints)
        if not is_asked[0]:
            last = found.chain[-1]
            known = {edge: fixed | sent.get(name, EMPTY) for edge, fixed in last.projected.items()}  # type: ignore[operator]
            found.chain[-1] = replace(last, projected=known)
        return found

    patch.setattr(Marks, "take_in", remember)
    patch.setattr(rollback, "saved", as_remembered)
    patch.setattr(recovery, "decide_rollback", note)


def voided_beyond_the_checkpoint(patch: Patch) -> None:
    """A deterministic region that goes back further than it must voids results that it will send again unchanged.

    Schedules seldom show it, so a separate test plays it: test_lost_checkpoints.py.
    """
    beyond = SimRegion.beyond
    patch.setattr(SimRegion, "beyond", lambda region, number, upto: beyond(region, number, EMPTY))


BUGS: dict[str, Callable[[Patch], None]] = {
    f.__name__: f
    for f in (
        no_fence, nothing_is_voided, voided_by_position, voided_before_the_fence, readers_stay,
        newest_checkpoint_whatever_was_decided, swapped_inclusion, collected_one_too_far,
        collected_without_asking_the_readers, acknowledged_by_what_can_be_restored, acknowledged_by_the_fastest_reader,
        released_on_arrival, released_without_looking, recorded_before_it_is_released, cut_off_recovery_is_forgotten,
        the_sink_is_not_asked, everybody_goes_back, released_by_the_wrong_watermark,
        acknowledged_without_the_history, late_records_count, readers_start_first, a_lost_checkpoint_is_overlooked,
        one_checkpoint_is_kept, released_by_a_checkpoint_that_may_be_lost, a_newer_checkpoint_counts_as_left,
        marks_are_forgotten, what_was_drawn_counts_as_fixed, cuts_are_not_taken_in, an_epoch_counts_in_part,
        epochs_are_numbered_from_one_in_their_log,
    )
}  # fmt: skip
