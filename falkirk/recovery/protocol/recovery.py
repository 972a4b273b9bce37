"""Recovery: the protocol over ports. It recovers, releases, collects and acknowledges, and nothing else.

One turn: read the regions' new checkpoints; restore regions that are dead or hang; release the results that can no
longer become invalid; delete data that is no longer needed; acknowledge input to the sources. A crash may interrupt a
turn between any two calls, and the next host begins with `open`. Four rules make that safe:

  - One transaction records a recovery and the results that it voids, before any region is rewound. A host that finds
    the recovery unfinished repeats it as recorded.
  - The void results are read after the fence, so none are added later.
  - A release asks the sink itself which results it already has.
  - Deletion follows watermarks that only grow. Source: Falkirk Wheel, §4.2 (monitor), §4.3 (outputs), §4.4 (recovery).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce

from falkirk.errors import FalkirkError, UnrecoverableError
from falkirk.errors.conditions.protocol import CHECKPOINT_TOO_OLD
from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.down import Down, concerns_one, related
from falkirk.recovery.protocol.kept import NO_HISTORY, RetainedCheckpoints
from falkirk.recovery.protocol.layout import Layout, cut, source_name
from falkirk.recovery.protocol.marks import Mark, Marks
from falkirk.recovery.protocol.ports import Checkpoint, LogsPort, RegionPort
from falkirk.recovery.protocol.rollback import RollbackDecision, contradiction, decide_rollback, none_left, refuse_loss
from falkirk.recovery.protocol.sinks import Sinks
from falkirk.recovery.protocol.watermarks import Watermarks
from falkirk.theory.frontier import EMPTY, TOP, OffsetFrontier
from falkirk.theory.history import History
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId, Offset
from falkirk.theory.projection import Cuts
from falkirk.theory.times import OMEGA


class RecoveryProtocol:
    """Controls the regions and logs of one application.

    Args:
        layout: the regions and logs. regions: by the layout's names.
        history: which checkpoints to keep for requested rollbacks, in addition to those that a failure may need.
        full_history: the regions of which all checkpoints are kept.
        live: the regions whose checkpoints Spark may find damaged. More than their newest checkpoint is kept.
        spare: how many of their checkpoints may be damaged without a loss. Results of a non-deterministic region wait
            for this many more checkpoints.
        say: receives one line for the user at each event.
        on_failure, before_start: receive a region's name, and on_failure the reason, before the region is restored or
            started. If one raises an error, the region stays down. If before_start returns False, the region is not
            started.
        may_start: tells of a region that does not run whether it may be started now.
        may_delete: returns whether old data may be deleted and input acknowledged (`Home.may_delete`).

    Attributes: down: the regions that stay down. sinks: the sinks of held logs.
    """

    def __init__(
        self, layout: Layout, regions: Mapping[str, RegionPort], logs: LogsPort, store: Store,
        clock: Callable[[], float], *, history: History = NO_HISTORY, full_history: Collection[str] = (),
        live: Collection[str] = (), spare: int = 0,
        say: Callable[[str], None] = lambda text: None,
        on_failure: Callable[[str, str], None] = lambda name, reason: None,
        before_start: Callable[[str], bool] = lambda name: True,
        may_start: Callable[[str], bool] = lambda name: True,
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.layout, self._regions, self._logs, self._store, self._clock = layout, regions, logs, store, clock
        self._say, self._on_failure = say, on_failure
        self._before_start, self._may_start, self._may_delete = before_start, may_start, may_delete
        self.down = Down(layout, clock)
        self._kept = RetainedCheckpoints(layout, history, frozenset(full_history), clock)
        self._marks = Marks(layout, store, live)
        self.watermarks = Watermarks(layout, regions, self._marks, live, spare)
        self._cut_off = False
        #: The regions that could not be fenced when others were started.
        self._behind: set[str] = set()
        self.sinks = Sinks(layout, logs, clock, say)
        self._released = {held: self._recorded(held) for held in layout.held}

    # -- the turn -----------------------------------------------------------------------------------------------------

    def open(
        self, *, asked: Mapping[str, CheckpointNumber] | None = None, force: bool = False, reason: str = "start"
    ) -> RollbackDecision:
        """Take charge: finish an interrupted recovery, if there is one, and then restore every region.

        Args, raises: as `recover`.
        """
        self._finish()
        for held in self.layout.held:
            self._released[held] = self.sinks.remains(held, self._released[held])
        return self.recover(frozenset(self.layout.stages), reason, asked=asked, force=force)

    def turn(self) -> None:
        """Take one turn; see the head of this file."""
        if self._cut_off:
            self._finish()  # the store may have recorded it as done before the error
            self.begin_again()
        self.watermarks.take_in(self.layout.stages)
        if failed := {name: why for name in self.layout.stages if (why := self._failure(name)) is not None}:
            self._recover_failed(failed)
        self._try_again()
        self._release()
        self.collect()
        self._acknowledge()

    def _try_again(self) -> None:
        """Start the regions that stayed down for a reason that may pass, if they can be fenced now."""
        ready = {name for name in sorted(self.down.due()) if self.down.fences(name, self._regions[name])}
        if ready:
            self.recover(frozenset(ready), "tried again")

    def _recover_failed(self, failed: Mapping[str, str]) -> None:
        """Recover from these failures. A region that failed too often stays down instead."""
        left = dict(failed)
        for name, reason in failed.items():
            try:
                self._on_failure(name, reason)
            except FalkirkError as error:
                self.keep_down(name, error)
                del left[name]
        if left:
            self.recover(frozenset(left), "; ".join(f"{n} {why}" for n, why in sorted(left.items())))

    def keep_down(self, name: str, error: FalkirkError) -> None:
        """Leave a region down that has stopped and that a restart can't help, while the others run on.

        It counts as alive: the records that it has sent stay valid, and Falkirk keeps the records that it may need.
        Raises: the error, if it concerns more than this region, or if nothing is left that can make progress.
        """
        self.down.keep(name, error)
        self.down.refuse_standstill()

    def release_of(self, names: Collection[str]) -> None:
        """Release the results that new checkpoints of these regions allow, without waiting for the next turn."""
        if not self._cut_off:
            self.watermarks.take_in(names)
            self._release()

    def _finish(self) -> None:
        """Carry out the decision of an interrupted recovery, if there is one.

        The regions that it stopped are dead now, and the next turn restores them like any dead region. Regions that the
        application no longer has need no recovery.
        """
        unfinished = self._store.unfinished_recovery()
        if unfinished is None:
            self._cut_off = False
            return
        self._say(f"recovery {unfinished.recovery} ({unfinished.reason}) was interrupted; finishing it")
        decided = {n: p for n, p in unfinished.decided.items() if p is not None and n in self._regions}
        self._carry_out(unfinished.recovery, decided)
        self._store.advance_recovery(unfinished.recovery, "done")
        self._cut_off = False

    def _failure(self, name: str) -> str | None:
        """Return why a region has to be restored now. One that must not start yet is like one that is down."""
        health = self._regions[name].health()
        if name in self.down or health.ready_at_s > self._clock():
            return None
        if not health.runs:
            return "is dead" if self._may_start(name) else None
        silent_s = self._clock() - health.progressed_at_s
        return f"hangs: it has not got on for {silent_s:.0f} s" if silent_s > health.hung_after_s else None

    @property
    def checkpoints(self) -> Mapping[str, tuple[Checkpoint, ...]]:
        """The checkpoints of each region, as of the last turn."""
        return self.watermarks.checkpoints

    @property
    def marks(self) -> Mapping[str, Sequence[Mark]]:
        """The marks of each region, as `decide` takes them."""
        return self._marks.known

    def begin_again(self) -> None:
        """Compute the watermarks from all checkpoints there are now."""
        self.watermarks.begin_again({held: self.released(held) for held in self.layout.held})

    # -- recovery -----------------------------------------------------------------------------------------------------

    def recover(
        self,
        failed: frozenset[str],
        reason: str,
        *,
        asked: Mapping[str, CheckpointNumber] | None = None,
        force: bool = False,
    ) -> RollbackDecision:
        """Restore the greatest consistent state that the failed regions leave, and resume from it.

        Regions that can stay where they are keep running. The others are fenced. Then a new decision considers the
        results and checkpoints that these regions wrote before the fence. A region that can't be fenced, for a reason
        that concerns it alone, stays down, like one that is alive and makes no progress. If another one can't go back
        without it, so does everything that failed and is connected to it.

        Args: force: continue even if published results would be contradicted.
        Raises: GuaranteeError: `CONTRADICTS_RELEASED`: the requested rollback would make published results invalid;
            `CHECKPOINT_TOO_OLD`. UnrecoverableError: as `decide`, and `CHECKPOINT_LOST`: published results depend on
            damaged checkpoints. In this case the regions are fenced, and nothing else has happened.
        """
        fenced: set[str] = set()
        left: dict[str, FalkirkError] = {}
        while not (decision := self.decide(failed, asked, force=force)).goes.keys() <= fenced:
            for name in sorted(decision.goes.keys() & left.keys()):  # others can't go back without it
                for each in sorted(related(self.layout, name) & (failed | fenced)):
                    self.down.keep(each, left.setdefault(each, left[name]))
                    fenced.discard(each)
            for name in sorted(decision.goes.keys() - fenced - left.keys()):
                if self.down.fences(name, self._regions[name], must=bool(asked)):
                    fenced.add(name)
                else:
                    left[name] = self.down.errors[name]
            self._behind |= left.keys()
            # Readers that have started before their writers, which start now, must learn the fences of these.
            late = [self.layout.stages[name].output for name in self._behind & decision.goes.keys()]
            unaware = {r.name for log in late for r in self.layout.readers(log)} - self.down.errors.keys()
            failed = (failed | fenced - frozenset(asked or ()) | unaware) - left.keys()
        for name in decision.goes:
            self.down.forget(name)  # the record on which it failed may be cancelled now
        self._cut_off = True  # until it is done: after an error, the next turn finishes it
        voids = [
            void
            for name in decision.takes_back
            for void in self._regions[name].beyond(decision.goes[name], decision.upto(name))
        ]
        if not force:
            refuse_loss(self.layout, decision, voids)
        number = self._store.open_recovery(reason, dict(decision.goes), voids=voids)
        self._carry_out(number, decision.goes)
        # Writers first: they record their fences, and a reader skips records that arrive after a fence that it knows.
        for name in self.layout.stages:
            if name in decision.goes:
                self._start(name, decision.goes[name])
        self._behind -= decision.goes.keys()
        self._store.advance_recovery(number, "done")
        self._cut_off = False
        self.begin_again()
        self.down.refuse_standstill()
        return decision

    def _start(self, name: str, number: CheckpointNumber) -> None:
        try:
            if self._before_start(name):
                self._regions[name].start(number)
        except FalkirkError as error:
            self.down.keep(name, error)

    def decide(
        self,
        failed: frozenset[str],
        asked: Mapping[str, CheckpointNumber] | None = None,
        *,
        force: bool = False,
        checkpoints: Mapping[str, tuple[Checkpoint, ...]] | None = None,
    ) -> RollbackDecision:
        """Return the decision that `recover` would make now, without carrying it out.

        Args: checkpoints: those of all regions, if the caller has just read them. Raises: as `recover`.
        """
        if checkpoints is None:
            checkpoints = {name: region.checkpoints() for name, region in self._regions.items()}
        cuts = {name: Cuts.of(self._regions[name].cuts(EpochNumber(-1))) for name in self.layout.batches}
        try:
            decision = decide_rollback(
                self.layout, checkpoints, failed=failed, outside=self.outside(), asked=asked, marks=self._marks.known,
                cuts=cuts,
            )  # fmt: skip
        except UnrecoverableError as error:
            if not asked:
                raise
            raise CHECKPOINT_TOO_OLD.error(asked=dict(asked), reason=error.message) from error
        if decision.contradicts and asked and not force:
            raise contradiction(decision.contradicts)
        return decision

    def outside(self) -> dict[LogId, OffsetFrontier]:
        """Return the results that readers outside may have seen, as `decide` takes them."""
        # An interrupted release is in the sink and not in the store.
        found = {held: self.released(held) | self._copied(held) for held in self.layout.held}
        return found | {topic: cut(self._logs.ends(topic), self.layout, topic) for topic in self.layout.sinks}

    def _copied(self, held: LogId) -> OffsetFrontier:
        """Return how much of a held log may be in its sink. While the sink is not settled, that is all that may be
        released: an interrupted release has published no more."""
        if (copied := self.sinks.copied(held)) is not None:
            return copied
        if not self.watermarks.checkpoints:
            self.begin_again()
        return cut(self.watermarks.settled(held) & self._logs.ends(held), self.layout, held)

    def _carry_out(self, number: int, goes: Mapping[str, CheckpointNumber]) -> None:
        for name, checkpoint in goes.items():
            region = self._regions[name]
            try:
                region.fence()
            except FalkirkError as error:
                # An interrupted recovery is finished. The region has stopped, so it can be rewound. Only its start
                # needs to know where its outputs end.
                if not concerns_one(error):
                    raise
            region.rewind(checkpoint)
        self._store.advance_recovery(number, "restored")

    # -- release ------------------------------------------------------------------------------------------------------

    def released(self, held: LogId) -> OffsetFrontier:
        """Return how much of a held log is certainly published, without the part that a sink has lost since."""
        return self._released[held]

    def _recorded(self, held: LogId) -> OffsetFrontier:
        partitions = {e.partition: e for e in self.layout.sequences(held)}
        known = self._store.releases(self.layout.held[held])
        return OffsetFrontier.of({partitions[r.partition]: r.released_exclusive for r in known if r.topic == held})

    def _release(self) -> None:
        """Copy the results that can no longer become invalid: t ∈ φ(d)(f_low(src(d))), by the restorable watermark."""
        self._marks.record(self.kept_checkpoints)  # released results depend on them
        for held, sink in sorted(self.layout.held.items()):
            upto = cut(self.watermarks.settled(held) & self._logs.ends(held), self.layout, held)
            out = self.released(held)
            if upto <= out:
                continue
            before, copied = out, self.sinks.copy(held, out, upto | out)
            out = out if copied is None else out | copied
            if out == before:
                continue  # the sink can't be reached; the others can
            known, ends = self._recorded(held), self._logs.sink_ends(held, sink)
            for e, length in out.prefixes:
                if length > known.length(e):
                    self._store.record_release(sink, held, e.partition, Offset(int(length)), ends=ends)
            self._released[held] = out
            self.watermarks.take_in_release(held, out)

    # -- garbage and acknowledgement ----------------------------------------------------------------------------------

    def kept_checkpoints(self, name: str) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of a region that a failure or a requested rollback may need. All later ones are kept.

        Raises: UnrecoverableError: `NO_CHECKPOINT_LEFT`.
        """
        checkpoints = self.checkpoints[name]
        if not checkpoints:
            raise none_left(name)
        return self._kept.of(name, checkpoints, self.watermarks.retained.low_watermark(name))

    def kept(self, name: str) -> Checkpoint:
        """Return the oldest of `kept_checkpoints`."""
        return self.kept_checkpoints(name)[0]

    def garbage(self) -> tuple[dict[str, tuple[CheckpointNumber, ...]], dict[LogId, OffsetFrontier]]:
        """Return the data to keep: per region, these checkpoints and all later ones; per hop, records from here on.

        A log is kept from the earliest checkpoint to which its readers or its writer may go back. The writer looks
        there for the results that it has sent since its checkpoint.
        """
        kept = {name: self.kept(name) for name in self.layout.stages}
        below: dict[LogId, OffsetFrontier] = {}
        for topic in self.layout.hops:
            writer = self.layout.writer(topic)
            assert writer is not None
            bounds = [kept[writer.name].sent, *self._needed(kept, topic)]
            if topic in self.layout.held:
                bounds.append(self.released(topic))
            below[topic] = cut(reduce(lambda a, b: a & b, bounds, TOP), self.layout, topic)
        return {name: tuple(p.number for p in self.kept_checkpoints(name)) for name in kept}, below

    def _needed(self, kept: Mapping[str, Checkpoint], topic: LogId) -> Iterable[OffsetFrontier]:
        return (kept[r.name].reads_from for r in self.layout.readers(topic))

    def collect(self) -> None:
        """Delete the data that is no longer needed, if anything may be deleted now."""
        (checkpoints, below), may_delete = self.garbage(), self._may_delete()
        for name, numbers in checkpoints.items():
            region = self._regions[name]
            (region.keep_only if may_delete else region.set_aside)(numbers)
        self.watermarks.forget_below()
        for topic, upto in below.items():
            if may_delete and not upto.is_empty:
                self._logs.delete_below(topic, upto)

    def _acknowledge(self) -> None:
        for topic in self.layout.sources:
            upto = self.acknowledged(topic)
            if not upto.is_empty:
                self._logs.acknowledge(topic, upto)

    def acknowledged(self, source: LogId) -> OffsetFrontier:
        """Return up to where a source will never be read again. Others delete these records."""
        if not self._may_delete():
            return EMPTY
        upto = self.watermarks.retained.low_watermark(source_name(source))
        for reader in self.layout.readers(source):
            upto = upto & self.kept(reader.name).reads_from  # checkpoints kept for a requested rollback read it too
        assert isinstance(upto, OffsetFrontier)
        known = {e: n for e, n in cut(upto, self.layout, source).prefixes if n != OMEGA}
        return OffsetFrontier.of(known) | EMPTY
