"""Batches at rest: inspects a batch that does not run, and rolls it back. It needs no Spark."""

from collections.abc import Mapping, Sequence

from falkirk.declare.parts import JOBS, ROUNDS, UNFINISHED
from falkirk.plan.region import BatchLogs
from falkirk.recovery.protocol.ports import Checkpoint, Health, LogRange
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.allowance import Allowance
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.theory.frontier import EMPTY, Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.ids import INITIAL, CheckpointNumber, EpochNumber, LogId, Offset, Positions


def epoch_log_of(logs: BatchLogs, place: Storage, allowance: Allowance | None = None) -> EpochLog:
    """Return the log of a batch's epochs. Args: allowance: as of `EpochLog`."""
    return EpochLog(logs.log, logs.name, place.home.data_of(logs.name), place.home.store, allowance)


class BatchAtRest:
    """A batch that does not run, as a RegionPort: its `start` does nothing.

    Args: epochs: its log. files: the files of all folder sources of the application, by log.
    """

    def __init__(self, logs: BatchLogs, place: Storage, epochs: EpochLog, files: Mapping[LogId, FileLog]) -> None:
        self.logs, self._place, self._store, self.epochs, self._files = logs, place, place.home.store, epochs, files
        #: The checkpoints as of the last call, with the epochs of which they were made.
        self._known: dict[EpochNumber, tuple[Epoch, Checkpoint]] = {}

    def health(self) -> Health:
        """See RegionPort."""
        return Health(runs=False)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """See RegionPort: the epochs with a saved state, if all epochs before them are complete."""
        kept = self._kept_from()
        read, found = self._start_positions(), list[Checkpoint]()
        known, self._known = self._known, {}
        if kept < 0:
            found.append(Checkpoint(number=INITIAL, read=self._read(read, {}), sent=EMPTY))
        for epoch in self.epochs.epochs():
            if not epoch.is_complete:
                break
            if epoch.number >= kept and epoch.saved:
                made = known.get(epoch.number)
                if made is None or made[0] is not epoch:  # the log returns the same object for an epoch that is settled
                    made = epoch, self._checkpoint(epoch)
                self._known[epoch.number] = made
                found.append(made[1])
        return self._reachable(found)

    def cuts(self, after: EpochNumber) -> tuple[tuple[EpochNumber, OffsetFrontier], ...]:
        """See RegionPort."""
        return tuple((e.number, self._read(e.last, e.views)) for e in self.epochs.epochs() if e.number > after)

    def _checkpoint(self, epoch: Epoch) -> Checkpoint:
        return Checkpoint(
            number=CheckpointNumber(epoch.number),
            read=self._read(epoch.last, epoch.views),
            sent=OffsetFrontier.prefix(self.logs.log, epoch.number + 1),
            # A view's newest epoch is read again until there is a newer one.
            needs=self._frontier(epoch.then, epoch.views),
            made_at_s=epoch.made_at_s,
            detail=rounds_of(epoch),
        )

    def _reachable(self, checkpoints: list[Checkpoint]) -> tuple[Checkpoint, ...]:
        """Leave out the checkpoints whose replay would need expired input. The newest checkpoint always stays."""
        oldest: Positions = {}
        if len(checkpoints) > 1:
            oldest |= {t: self._place.oldest(t) for t in self.logs.topics}
            oldest |= {f: {0: self._files[f].there_from()} for f in self.logs.files if f in self._files}
        return tuple(
            checkpoint
            for checkpoint in checkpoints
            if checkpoint is checkpoints[-1]
            or all(
                checkpoint.reads_from.length_of(t, p) >= o
                for t, partitions in oldest.items()
                for p, o in partitions.items()
            )
        )

    def start(self, number: CheckpointNumber) -> None:
        """Do nothing. The next start of the application resumes from there."""

    def _start_positions(self) -> Positions:
        """Return where the first epoch begins."""
        record = self._store.region(self.logs.name)
        return {} if record is None else record.start_offsets

    def _read(self, last: Positions, views: dict[LogId, EpochNumber]) -> OffsetFrontier:
        """Return the input in the state. A view that was read up to an epoch counts with all epochs before it."""
        return self._frontier(last, {view: EpochNumber(number + 1) for view, number in views.items()})

    def _frontier(self, positions: Positions, views: dict[LogId, EpochNumber]) -> OffsetFrontier:
        return OffsetFrontier.before(positions | {view: {0: Offset(number)} for view, number in views.items()})

    def _kept_from(self) -> EpochNumber:
        checkpoint = self._store.retained_from(self.logs.name)
        return EpochNumber(-1 if checkpoint is None else checkpoint)

    def fence(self) -> None:
        """See RegionPort. A former run can write only into folders that no record names."""

    def beyond(self, number: CheckpointNumber, upto: Frontier) -> tuple[LogRange, ...]:
        """See RegionPort: the epochs decided after `upto`, complete or not. Their input is cut into epochs again.

        Epochs between `number` and `upto` stay as they are: complete, or to be computed with the recorded cut.
        """
        assert isinstance(upto, StructuredFrontier), "a batch counts in epochs"
        last = max((bound[0] for bound in upto.maxima), default=-1)
        later = [e.number for e in self.epochs.epochs() if e.number > last]
        return ((self.logs.log, 0, Offset(later[0]), Offset(later[-1] + 1)),) if later else ()

    def rewind(self, number: CheckpointNumber) -> None:
        """See RegionPort. The recovery has already voided later epochs; the others stay, and do not run again.

        The folders of void epochs stay until the application runs: only then its outputs are compared with the home.
        """

    def keep_only(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort."""
        kept = [EpochNumber(number) for number in numbers]
        if kept[0] > self._kept_from():
            self._store.retain_from(self.logs.name, CheckpointNumber(kept[0]))
        self.epochs.drop_states_below(kept[0])  # a former call may have left some
        self.epochs.forget_states(kept)

    def set_aside(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort. Nobody else deletes them."""


def rounds_of(epoch: Epoch) -> str:
    """Return how an iteration's loops have ended, and their rounds and jobs; for other batches, an empty text."""
    if ROUNDS not in epoch.marks:
        return ""
    ended = "stopped after" if epoch.marks.get(UNFINISHED) else "converged after"
    return f"{ended} {epoch.marks[ROUNDS]} rounds, {epoch.marks.get(JOBS, 0)} Spark jobs"
