"""Recomputed: computes the epochs of batches again, from the recorded inputs and with the user's functions.

All results go into a temporary folder, so the home stays as it is. A batch reads the results of another batch from the
log in the home while they are there. Otherwise it reads their recomputation.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copy2, copytree
from typing import TypeVar

from falkirk.checker import is_compacted
from falkirk.errors import HomeError, LogError, is_away
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.batch import Batch
from falkirk.plan.plan import Plan
from falkirk.platform.data import DataPath, local_path
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import ForgottenEpochs
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.jobs import EpochJobs, Shared
from falkirk.runtime.spark.epochs.log import DECISION, Epoch, EpochLog
from falkirk.steps.batch.in_epoch import BatchState
from falkirk.steps.batch.iteration import fetch_files
from falkirk.steps.batch.loop_files import LoopFolders
from falkirk.theory.ids import EpochNumber, LogId

Kept = TypeVar("Kept")
Read = TypeVar("Read")


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file, unless the running application has deleted it: no kept state names it then."""
    with suppress(FileNotFoundError):
        copy2(source, target)


class _NotKept(Exception):
    """Something that an epoch needs is not there any more; the text says what."""


class _Log(EpochLog):
    """The log of a batch, with its recomputed results where the home has deleted the real ones.

    Args: real: the log in the home. folder: for the recomputed results.
    """

    def __init__(self, real: EpochLog, batch: Batch, context: Context, folder: DataPath) -> None:
        super().__init__(real.name, batch.name, folder, context.home.store)
        self.real = real
        self.again: dict[EpochNumber, str] = {}
        forgotten = context.home.store.forgotten_epochs(batch.name)
        decided = context.home.store.decisions(DECISION, batch.name)
        #: The number of the first epoch with a record. No epoch was ever before it if it is 0.
        self.known_from = decided[0].number if decided else 0 if forgotten is None else forgotten.below
        self.forgotten = forgotten or ForgottenEpochs(first=self.known_from, below=self.known_from)

    def complete(self, first: EpochNumber, last: EpochNumber) -> tuple[Epoch, ...]:
        """See EpochLog. Raises: _NotKept: one of them has no record any more."""
        if first < min(last, self.known_from):
            raise _NotKept(f"epochs of {self.name.partition(':')[2]!r} that it has read were deleted")
        return super().complete(first, last)

    def results(self, epoch: Epoch) -> DataPath:
        """See EpochLog. Raises: _NotKept: they were deleted, and could not be computed again."""
        if (there := self.real.results_if_there(epoch)) is not None:
            return there
        if epoch.number not in self.again:
            name = self.name.partition(":")[2]
            raise _NotKept(f"epoch {epoch.number} of {name!r}, which it has read, was deleted")
        return self.path(self.again[epoch.number])


@dataclass(kw_only=True)
class RecomputedBatch:
    """The epochs of a batch that were computed again.

    Attributes: results: their results, in one folder for each epoch. reasons: why the others could not be computed.
    """

    batch: Batch
    log: _Log
    epochs: tuple[Epoch, ...]
    results: dict[EpochNumber, DataPath] = field(default_factory=dict)
    reasons: dict[EpochNumber, str] = field(default_factory=dict)


class Recomputation:
    """Computes the batches of a plan again. Args: folder: temporary."""

    def __init__(self, plan: Plan, context: Context, folder: Path) -> None:
        self._context, self._folder = context, folder
        self._logs = {
            b.log: _Log(epoch_log_of(b.logs(), context), b, context, LocalData(folder / b.name)) for b in plan.batches
        }
        folders = {i.log: (i.name, i.folder) for b in plan.batches for i in b.inputs if i.folder is not None}
        files = {log: FileLog(name, declared, context.home.store) for log, (name, declared) in folders.items()}
        logs: Mapping[LogId, EpochLog] = self._logs
        self._shared = Shared(logs=logs, files=files, on_complete=lambda name: None)
        self._compacted: dict[LogId, bool] = {}

    def of(self, batch: Batch) -> RecomputedBatch:
        """Compute the complete epochs of a batch. The batches that it reads come before it.

        Raises: HomeError: `STATE_DAMAGED`. LogError: the broker is away.
        """
        log = self._logs[batch.log]
        end = log.end()
        found = RecomputedBatch(batch=batch, log=log, epochs=tuple(e for e in log.epochs() if e.number < end))
        if batch.undetermined:
            reason = f"{', '.join(batch.undetermined)} may differ each time"
            found.reasons = {epoch.number: reason for epoch in found.epochs}
        else:
            log.folder.make()
            loops = None
            if self._context.home.is_shared:
                loops = LoopFolders(log.real.files(), self._folder / f"{batch.name} loops", is_recomputed=True)
            jobs = EpochJobs(batch, self._context, self._shared, None, loops)
            _Run(found, jobs, self._is_compacted, loops).run()
        return found

    def _is_compacted(self, topic: LogId) -> bool:
        if topic not in self._compacted:
            connection, name = self._context.connection.of_topic(topic)
            self._compacted[topic] = is_compacted(connection.client_options(), name) is True
        return self._compacted[topic]


def read_kept(
    kept: Callable[[], Kept], read: Callable[[Kept], Read], errors: tuple[type[BaseException], ...]
) -> tuple[Kept, Read]:
    """Return what the home keeps, and what `read` returns for it.

    The running application may delete results while Spark reads them, which ends in one of `errors`. Then `read` is
    called again, for the rest.
    """
    there = kept()
    while True:
        try:
            return there, read(there)
        except errors:
            before, there = there, kept()
            if there == before:
                raise


class _Run:
    """Computes the epochs of one batch, one after the other.

    Args: loops: the files of its iterations if they are in an object store.
    """

    def __init__(
        self, found: RecomputedBatch, jobs: EpochJobs, is_compacted: Callable[[LogId], bool],
        loops: LoopFolders | None,
    ) -> None:  # fmt: skip
        self._found, self._jobs, self._is_compacted, self._loops = found, jobs, is_compacted, loops
        self._batch, self._log = found.batch, found.log
        #: The state after the last epoch; None: unknown.
        self._state: BatchState | None = {} if self._log.known_from == 0 else None

    def run(self) -> None:
        for epoch in self._found.epochs:
            try:
                self._found.results[epoch.number] = self._compute_kept(epoch)
            except (_NotKept, LogError, *SPARK_ERRORS) as error:
                if is_away(error):
                    raise
                self._found.reasons[epoch.number] = error.message if isinstance(error, LogError) else first_line(error)
                self._state = None
            if self._state is None and self._batch.is_stateful:
                self._state = self._saved(epoch)

    def _compute_kept(self, epoch: Epoch) -> DataPath:
        """Compute an epoch; again, if the application has deleted results of other batches while Spark read them."""
        return read_kept(lambda: self._there(epoch), lambda _: self._compute(epoch), SPARK_ERRORS)[1]

    def _there(self, epoch: Epoch) -> tuple[tuple[LogId, EpochNumber], ...]:
        """Return the epochs of other batches that an epoch reads, and whose results the home still has."""
        logs = {log: other.real for log, other in self._jobs.all_logs.items() if isinstance(other, _Log)}
        read = {log: (epoch.first.get(log, {}).get(0, 0), epoch.last.get(log, {}).get(0, 0)) for log in logs}
        read |= {view: (number, number + 1) for view, number in epoch.views.items() if view in logs}
        return tuple(
            (log, e.number)
            for log, (first, last) in sorted(read.items())
            for e in logs[log].epochs()
            if first <= e.number < last and logs[log].is_there(e)
        )

    def _compute(self, epoch: Epoch) -> DataPath:
        if self._batch.is_stateful and self._state is None:
            raise _NotKept("the state before it was deleted")
        if self._batch.sorts is not None and self._log.known_from and epoch is self._found.epochs[0]:
            raise _NotKept("the record of the epoch before it was deleted")
        for given in self._batch.inputs:
            if given.topic is not None and self._is_compacted(given.log):
                raise _NotKept(f"topic {given.log} is compacted")
            if given.stamped and given.log.kind and not self._keeps_all(given.log, epoch):
                raise _NotKept(f"it reads stamps of {given.name!r}, whose results were deleted")
        self._jobs.refuse_expired(epoch)
        computed = self._jobs.compute(epoch, self._state or {}, f"verify-{self._batch.name}-{epoch.number}")
        try:
            name = self._log.new_folder(epoch.number)
            self._jobs.write(epoch, name, computed, direct=False)
            self._state = self._jobs.states.after(computed.kept, name) if self._batch.is_stateful else {}
        finally:
            computed.clean()
        self._log.again[epoch.number] = name
        return self._log.path(name)

    def _keeps_all(self, log: LogId, epoch: Epoch) -> bool:
        """Return whether the home still has the results of another batch that an epoch reads.

        A recomputation has the same rows, but perhaps in another order, and so with other stamps.
        """
        other = self._jobs.all_logs.get(log)
        if not isinstance(other, _Log):
            return True
        first, last = epoch.first.get(log, {}).get(0, 0), epoch.last.get(log, {}).get(0, 0)
        return all(other.real.is_there(e) for e in other.complete(EpochNumber(first), EpochNumber(last)))

    def _saved(self, epoch: Epoch) -> BatchState | None:
        """Return the state after an epoch as the home has saved it, if it has."""
        real = self._log.real
        if not epoch.saved or epoch.state is None or not real.path(epoch.state).exists():
            return None
        try:
            real.state(epoch)
            if self._batch.notes and self._loops is None and real.files().exists():
                source, target = (local_path(each, "a loop") for each in (real.files(), self._log.files()))
                copytree(source, target, copy_function=_copy_if_there, dirs_exist_ok=True)
            states = self._jobs.states_of(real)
            state = states.read(epoch.state, is_result=epoch.state == epoch.folder)
            if self._loops is not None:
                fetch_files(self._loops, {slot: str(state[slot]) for slot in self._batch.notes if slot in state})
        except (HomeError, FileNotFoundError):
            if real.path(epoch.state).exists():
                raise
            return None
        # If the application has deleted it meanwhile, it has perhaps deleted its files before they were copied.
        return state if real.path(epoch.state).exists() else None
