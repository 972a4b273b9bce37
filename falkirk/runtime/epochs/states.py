"""States: saves the state of a batch after an epoch in a separate folder: rows as Parquet files, and notes as text."""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from falkirk.operators.in_epoch import BatchState
from falkirk.operators.iteration import sweep_files
from falkirk.plan.batch import Batch
from falkirk.runtime.epochs.computed import OWN_STATE
from falkirk.runtime.epochs.inputs import read_folders
from falkirk.runtime.epochs.log import Epoch, EpochLog
from falkirk.system.data import DataPath, local_path


class States:
    """The states of one batch. Args: epochs: its log."""

    def __init__(self, session: SparkSession, batch: Batch, epochs: EpochLog) -> None:
        self._session, self._batch, self._epochs = session, batch, epochs

    def write(self, epoch: Epoch, state: BatchState) -> str:
        """Write a state; return its folder."""
        name = self._epochs.new_folder(epoch.number, "state")
        folder = self._epochs.path(name)
        try:
            for slot, kept in state.items():
                if isinstance(kept, DataFrame):
                    (folder / slot).write(kept.write)
                else:
                    _note(folder, slot).write_text(kept)
            self._epochs.sync(name)
        except BaseException:
            self._epochs.drop(name)  # the retry uses another folder, and the disk may be full
            raise
        return name

    def read(self, folder: str, *, is_result: bool) -> BatchState:
        """Return a saved state. Args: is_result: the epoch's result is also its whole state."""
        path, schemas = self._epochs.path(folder), dict(self._batch.slots)
        if self._batch.state is not None:
            schemas[OWN_STATE] = self._batch.state
        if is_result:
            return {OWN_STATE: read_folders(self._session, [path], schemas[OWN_STATE])}
        rows = {slot: read_folders(self._session, [path / slot], schema) for slot, schema in schemas.items()}
        return {**rows, **{slot: _note(path, slot).read_text() for slot in self._batch.notes}}

    def after(self, kept: BatchState, folder: str) -> BatchState:
        """Return the state after an epoch, which is in no file; Spark keeps it in its storage.

        Args: kept: from its computation. folder: its results; they are the batch's own state if `kept` has none.
        """
        if self._batch.state is not None and OWN_STATE not in kept:
            kept = {**kept, **self.read(folder, is_result=True)}
        return {slot: k if isinstance(k, str) else k.localCheckpoint(eager=True) for slot, k in kept.items()}

    def sweep(self, states: Iterable[BatchState]) -> None:
        """Delete the files that no note names any more, neither in a saved state nor in these states."""
        current = list(states)
        saved = [self._epochs.path(e.state) for e in self._epochs.epochs() if e.state is not None]
        for slot in self._batch.notes:
            kept = [_note(path, slot).read_text() for path in saved if _note(path, slot).exists()]
            folder = local_path(self._epochs.files() / slot, "a loop")
            sweep_files(folder, [*kept, *(str(s[slot]) for s in current if slot in s)])


def _note(folder: DataPath, slot: str) -> DataPath:
    return folder / f"{slot}.json"
