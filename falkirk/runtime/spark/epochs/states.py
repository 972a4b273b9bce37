"""States: saves the state of a batch after an epoch in a separate folder: rows as Parquet files, and notes as text."""

import json
import logging
from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame, SparkSession

from falkirk.errors import StoreError
from falkirk.plan.batch import Batch
from falkirk.platform.data import DataPath, is_hidden
from falkirk.runtime.spark.epochs.computed import OWN_STATE
from falkirk.runtime.spark.epochs.inputs import read_folders
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.steps.batch.in_epoch import BatchState
from falkirk.steps.batch.iteration import named_files
from falkirk.steps.batch.loop_files import LoopFolders

log = logging.getLogger("falkirk")


class States:
    """The states of one batch. Args: epochs: its log. loops: the files that notes name."""

    def __init__(self, session: SparkSession, batch: Batch, epochs: EpochLog, loops: LoopFolders) -> None:
        self._session, self._batch, self._epochs, self._loops = session, batch, epochs, loops
        #: The notes of saved states, which never change, by slot and folder.
        self._noted: dict[tuple[str, str], str] = {}

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
                    self._noted[slot, name] = kept
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

    def size_bytes(self, epoch: Epoch) -> int | None:
        """Return the size of all files of the saved state after a complete epoch.

        None: it was deleted meanwhile, or it can't be read, which the batch reports itself. Raises: StoreError.
        """
        is_result = epoch.state == epoch.folder
        files = epoch.files if is_result else epoch.state_files
        sizes = [size for path, (size, *_) in files.items() if not is_hidden(path)]  # no dead letters
        for slot in () if is_result else self._batch.notes:
            try:  # the text is damaged, or no text at all
                note = self._noted.get((slot, str(epoch.state))) or self._note_of(slot, str(epoch.state))
                sizes += [int(size) for size, *_ in json.loads(note or "").get("files", {}).values()]
            except (ValueError, TypeError, AttributeError):
                return None
        return sum(sizes)

    def after(self, kept: BatchState, folder: str) -> BatchState:
        """Return the state after an epoch, which is in no file; Spark keeps it in its storage.

        Args: kept: from its computation. folder: its results; they are the batch's own state if `kept` has none.
        """
        if self._batch.state is not None and OWN_STATE not in kept:
            kept = {**kept, **self.read(folder, is_result=True)}
        return {slot: k if isinstance(k, str) else k.localCheckpoint(eager=True) for slot, k in kept.items()}

    def sweep(self, states: Iterable[BatchState], is_over: Callable[[], bool]) -> None:
        """Delete the files that no note names any more, neither in a saved state nor in these states.

        For now, those of earlier processes may have to stay (`Home.may_delete`). Then a later epoch deletes them.

        Args: is_over: returns whether another run of the batch may have begun.
        Raises: StoreError: `HOME_TAKEN_OVER`.
        """
        only_own = not self._loops.may_delete()
        # Nobody waits for this call without a limit: the next run may have files before it ends. So the candidates are
        # taken first, and only those count that were there before the next run could begin.
        candidates = {slot: self._loops.of(slot).candidates(only_own=only_own) for slot in self._batch.notes}
        if is_over():
            return
        current, known = list(states), self._noted
        saved = [(slot, e.state) for slot in self._batch.notes for e in self._epochs.epochs() if e.state is not None]
        try:
            self._noted = {key: note for key in saved if (note := known.get(key) or self._note_of(*key)) is not None}
        except StoreError as error:
            if error.condition != "DATA_AWAY":
                raise
            log.warning("%s: old files stay until the next epoch: %s", self._batch.name, error.message)
            return
        for slot in self._batch.notes:
            kept = [note for (of, _), note in self._noted.items() if of == slot]
            names = named_files([*kept, *(str(s[slot]) for s in current if slot in s)])
            self._loops.of(slot).sweep(candidates[slot], names)

    def _note_of(self, slot: str, folder: str) -> str | None:
        """Return the note in a saved state, or None if it has none."""
        try:  # the main thread may delete the folder at any time
            return _note(self._epochs.path(folder), slot).read_text()
        except FileNotFoundError:
            return None


def _note(folder: DataPath, slot: str) -> DataPath:
    return folder / f"{slot}.json"
