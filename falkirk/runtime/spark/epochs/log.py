"""Logs of epochs: the results of a batch, in one folder of Parquet files per epoch, and where each epoch was cut.

An epoch is *decided* when its cut is recorded. It is *complete* when its results are recorded, and then they never
change. Epochs may complete in any order, but readers see them in the order of their numbers. A rollback voids epochs
by number, and a number is never reused. The store records which folder holds an epoch, so a folder that a crash or a
late writer left belongs to no epoch.

To the recovery protocol this is a log of one partition whose records are epochs.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from falkirk.declare.cut import SLICE
from falkirk.errors import HomeError
from falkirk.errors.conditions.spark import EPOCH_OPEN
from falkirk.platform.data import DataPath, Manifest
from falkirk.platform.durable import damaged
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.values import CheckpointRecord, Decision
from falkirk.runtime.spark.epochs.allowance import STATES_SHARE, Allowance
from falkirk.runtime.spark.epochs.starts import Starts
from falkirk.theory.ids import EpochNumber, LogId, Offset, Positions
from falkirk.theory.offsets import PartitionRange, positions_from_json, positions_to_json

#: The kind of decision with the cut of an epoch.
DECISION = "epoch"
#: The folder of the files that states name.
_FILES = "_files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A decided epoch.

    Args:
        number: from 0.
        first, last: the range that it reads of each log, per partition.
        slice: the number of the last slice of time that it reads; only for epochs by event time.
        then: where the next epoch begins to read. This is `last`, except for epochs by event time, because a range of
            their input has rows of several slices.
        marks: small numbers that its computation leaves for the next epoch.
        views: the epoch that it reads of each view.
        cut_at_s: when it was decided. If the cut left some input, the time of the previous cut, so that the next epoch
            is due at the same time.
        decided_at_s: when its cut was recorded. All its input is older.
        folder: the folder of its results; None until it is complete.
        state: the folder of the state after it; None if there is no state or it is in no folder.
        saved: the batch can go back to it.
        rows, dead: the number of results, and the number of records that did not fit.
        made_at_s: when it was completed.
        files, state_files: the content of the two folders; see `falkirk.platform.durable`.
        may_be_out: its results may go straight to their topic, so some may be published before it is complete.
        direct: its results are in the topic and not in its folder.
        refused: by log, the numbers of the files between `first` and `last` that a complete epoch has not read.
        absent: the topics that its batch did not read yet when it was decided. Their ranges are empty.
    """

    number: EpochNumber
    first: Positions
    last: Positions
    then: Positions
    views: dict[LogId, EpochNumber]
    cut_at_s: float
    decided_at_s: float = 0.0
    slice: int | None = None
    folder: str | None = None
    state: str | None = None
    saved: bool = False
    rows: int = 0
    dead: int = 0
    made_at_s: float | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    files: Manifest = field(default_factory=dict)
    state_files: Manifest = field(default_factory=dict)
    may_be_out: bool = False
    direct: bool = False
    refused: Mapping[LogId, Sequence[Offset]] = field(default_factory=dict)
    absent: frozenset[LogId] = frozenset()

    @property
    def is_complete(self) -> bool:
        """Whether its results are recorded."""
        return self.folder is not None


class EpochLog:
    """The epochs of one batch.

    Args: name: the name of the log. region: the name of the batch. folder: contains the folders of the epochs.
        allowance: limits deletions; None: nothing does.
    """

    def __init__(
        self, name: LogId, region: str, folder: DataPath, store: Store, allowance: Allowance | None = None
    ) -> None:
        self.name, self.folder, self._allowance = name, folder, allowance or Allowance()
        self.region, self._store, self._starts = region, store, Starts(region, store)
        self._results_from = self._states_from = self._forgotten_below = EpochNumber(0)
        #: The synced folders that are in no record yet, and the folders whose contents were checked, with their files.
        self._synced: dict[str, Manifest] = {}
        self._checked: dict[str, DataPath] = {}
        self._slices: dict[str, frozenset[int]] = {}
        #: A cache of the epochs that will not change any more, oldest first. A log may hold months of epochs.
        self._settled: tuple[Epoch, ...] = ()
        #: Those of them whose states are not kept any more. No number is used twice.
        self._forgotten: set[EpochNumber] = set()

    def epochs(self) -> tuple[Epoch, ...]:
        """Return the epochs that are not void, by number."""
        settled = self._settled
        newer, void = (
            self._read(EpochNumber(settled[-1].number + 1 if settled else 0)),
            self._store.voided_ranges(self.name),
        )
        counting = [e for e in newer if not _is_in(e, void)]
        # All complete epochs except the last one, because its state may still be saved.
        known = settled + tuple(takewhile(lambda e: e.is_complete, counting))[:-1]
        if self._forgotten:
            known = tuple(replace(e, saved=False, state=None) if e.number in self._forgotten else e for e in known)
        self._settled = known  # if another thread has cached more, it reads these epochs again
        found = known + tuple(counting[len(known) - len(settled) :])
        return tuple(e for e in found if not _is_in(e, void)) if void else found

    def learn_starts(self) -> None:
        """Look again where the batch began to read each log: it may read further ones from now on."""
        self._starts.forget()
        self._settled = ()

    def void_rows(self, below: EpochNumber) -> dict[int, int]:
        """Return the numbers of rows of the complete epochs before `below` that are void, by number of epoch."""
        if not (void := self._store.voided_ranges(self.name)):
            return {}
        return {e.number: e.rows for e in self._read(EpochNumber(0)) if e.number < below and e.rows and _is_in(e, void)}

    def _read(self, first: EpochNumber) -> tuple[Epoch, ...]:
        """Read the epochs from a number on, including void ones.

        Reads the complete epochs before the decided ones, so that no epoch counts as complete too early.
        """
        made = {c.number: c for c in self._store.checkpoints(self.region, first)}
        decided = self._store.decisions(DECISION, self.region, first)
        return tuple(self._epoch(d, made.get(EpochNumber(d.number))) for d in decided)

    def _epoch(self, decided: Decision, made: CheckpointRecord | None) -> Epoch:
        """Return an epoch. Raises: HomeError: `STATE_DAMAGED`: its record in the store is torn."""
        try:
            return _epoch(decided, made, self._starts)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"the record of epoch {decided.number} of {self.region!r} is not what Falkirk writes: {error!r}."
            raise damaged(text, self.folder, epoch=decided.number) from error

    def complete(self, first: EpochNumber, last: EpochNumber) -> tuple[Epoch, ...]:
        """Return the epochs [first, last) that are not void; `last` is at most `end`.

        Raises: InternalError: `EPOCH_OPEN`: one of them is not complete. Skipping it would lose it.
        """
        found = tuple(e for e in self.epochs() if first <= e.number < last)
        for epoch in found:
            if not epoch.is_complete:
                raise EPOCH_OPEN.error(where=self.name, epoch=epoch.number)
        return found

    def slices(self, epoch: Epoch) -> frozenset[int]:
        """Return the slices of time that have rows in an epoch, from its folder, which never changes.

        Raises: as `results`.
        """
        if epoch.folder not in self._slices:
            found = (p.name.partition("=") for p in self.results(epoch).children())
            self._slices[str(epoch.folder)] = frozenset(int(number) for name, _, number in found if name == SLICE)
        return self._slices[str(epoch.folder)]

    def begin(self) -> EpochNumber:
        """Return the number of the oldest epoch whose results still exist; the end of the log if none do."""
        end = self.end()
        return next((e.number for e in self.epochs() if e.number < end and self.is_there(e)), end)

    def is_there(self, epoch: Epoch) -> bool:
        """Return whether the results of an epoch are still in its folder."""
        return not epoch.direct and self.path(str(epoch.folder)).exists()

    def results_if_there(self, epoch: Epoch) -> DataPath | None:
        """Return the folder of a complete epoch's results; None: the application has deleted it, perhaps just now.

        Raises: as `results`.
        """
        try:
            return self.results(epoch) if self.is_there(epoch) else None
        except HomeError:
            if self.is_there(epoch):
                raise
            return None

    def has_all(self, first: EpochNumber, last: EpochNumber) -> bool:
        """Return whether the results of all epochs [first, last) still exist, except void ones."""
        there = {e.number for e in self.epochs() if self.is_there(e)}
        return all(n in there for n in self._counting(first, last))

    def any_counts(self, first: EpochNumber, last: EpochNumber) -> bool:
        """Return whether any epoch in [first, last) counts. A sink never gets the others, and can't remember them."""
        return any(True for _ in self._counting(first, last))

    def _counting(self, first: EpochNumber, last: EpochNumber) -> Iterator[EpochNumber]:
        void = self._store.voided_ranges(self.name)
        return (EpochNumber(n) for n in range(first, last) if not any(v.covers(n) for v in void))

    def newest(self) -> EpochNumber | None:
        """Return the newest epoch that is complete with all epochs before it; None: there is none."""
        end = self.end()
        before = [e for e in self.epochs() if e.number < end]
        return before[-1].number if before and not before[-1].direct else None

    def end(self) -> EpochNumber:
        """Return where the log ends for its readers: before the first epoch that is not complete."""
        upto = self.next_number()  # first: another thread may decide one more at any moment
        return next((e.number for e in self.epochs() if e.number < upto and not e.is_complete), upto)

    def next_number(self) -> EpochNumber:
        """Return the number of the next epoch to decide. It was never used before."""
        newest = self._store.newest_decision(DECISION, self.region)
        return EpochNumber(0 if newest is None else newest.number + 1)

    def decide(
        self, first: Positions, last: Positions, views: dict[LogId, EpochNumber], now_s: float, *,
        slice_: int | None = None, then: Positions | None = None, may_be_out: bool = False,
    ) -> EpochNumber:  # fmt: skip
        """Record where the next epoch is cut, before any of its input is read; return its number. Args: see `Epoch`."""
        number = self.next_number()
        content: dict[str, Any] = {
            "first": positions_to_json(first),
            "last": positions_to_json(last),
            "views": views,
            "cut_at_s": now_s,
        }
        if then is not None:
            content |= {"slice": slice_, "then": positions_to_json(then)}
        if may_be_out:
            content["may_be_out"] = True
        self._store.record_decision(DECISION, self.region, number, content)
        return number

    def record(
        self, number: EpochNumber, *, folder: str, rows: int, dead: int, state: str | None, saved: bool,
        marks: Mapping[str, int] | None = None, direct: bool = False,
        refused: Mapping[LogId, Sequence[Offset]] | None = None,
    ) -> None:  # fmt: skip
        """Record that an epoch is complete; from now on its results never change. Its folders are on disk before."""
        content: dict[str, Any] = {"folder": folder, "rows": rows, "dead": dead, "state": state, "saved": saved}
        content["files"] = self.sync(folder)
        if state is not None and state != folder:
            content["state_files"] = self.sync(state)
        for known in (folder, state):
            self._synced.pop(str(known), None)
        if marks:
            content["marks"] = dict(marks)
        if direct:
            content["direct"] = True
        if refused:
            content["refused"] = {log: list(numbers) for log, numbers in refused.items()}
        self._store.add_checkpoint(self.region, number, content)

    def record_state(self, number: EpochNumber, state: str) -> None:
        """Record that the state after a complete epoch was saved later. From now on the batch can go back to it."""
        (known,) = (c.metadata for c in self._store.checkpoints(self.region) if c.number == number)
        assert isinstance(known, dict), "only this class records epochs"
        saved = {"state": state, "saved": True}
        if state != known["folder"]:
            saved["state_files"] = self.sync(state)
        self._store.replace_checkpoint(self.region, number, known, {**known, **saved})
        self._settled = tuple(e for e in self._settled if e.number < number)

    def sync(self, folder: str) -> Manifest:
        """Write a folder with all its files durably to disk, once; return its manifest."""
        if folder not in self._synced:
            self._synced[folder] = self.path(folder).sync()
        return self._synced[folder]

    def results(self, epoch: Epoch) -> DataPath:
        """Return the folder of a complete epoch's results. Raises: HomeError: `STATE_DAMAGED`: some are missing."""
        return self._whole(str(epoch.folder), epoch.files)

    def state(self, epoch: Epoch) -> DataPath:
        """Return the folder of the state after an epoch. Raises: as `results`."""
        return self._whole(str(epoch.state), epoch.files if epoch.state == epoch.folder else epoch.state_files)

    def _whole(self, folder: str, files: Manifest) -> DataPath:
        """Compare a folder with its manifest: the contents of its files once, and their sizes each time."""
        whole = self.path(folder).check(files, contents=folder not in self._checked)
        self._checked[folder] = whole
        return whole

    def path(self, folder: str) -> DataPath:
        """Return the path of a folder; once `results` or `state` has checked it, with the files of its manifest."""
        return self._checked.get(folder, self.folder / folder)

    def files(self) -> DataPath:
        """Return the folder of the files that states name. Each state may name several."""
        return self.folder / _FILES

    def dead(self, folder: str, topic: int) -> DataPath:
        """Return the folder of the dead letters of one input topic. Readers of the results skip this folder."""
        return self.folder / folder / f"_dead{topic}"

    def drop_results_below(self, number: EpochNumber) -> None:
        """Delete the results of earlier epochs, which all sinks and readers have, within the allowance of this turn."""
        if number > self._results_from:
            free = [(e.number, e.folder) for e in self.epochs() if e.state != e.folder or e.number < self._states_from]
            self._results_from = self._allowance.drop(free, self.drop, self._results_from, number)
        self._forget()

    def drop_states_below(self, number: EpochNumber) -> None:
        """Delete the states saved before this epoch."""
        if number > self._states_from:
            free = [(e.number, e.state) for e in self.epochs() if e.state != e.folder or e.number < self._results_from]
            self._states_from = self._allowance.drop(free, self.drop, self._states_from, number, STATES_SHARE)
        self._forget()

    def forget_states(self, kept: Sequence[EpochNumber]) -> None:
        """Drop the states between these epochs: nobody goes back to them. The results of these epochs stay."""
        needed = frozenset(kept)
        due = [e for e in self.epochs() if e.saved and kept[0] < e.number < kept[-1] and e.number not in needed]
        records = dict[EpochNumber, Any]()
        for epoch in self._allowance.limited(due, STATES_SHARE):
            records = records or {c.number: c.metadata for c in self._store.checkpoints(self.region, epoch.number)}
            known = records[epoch.number]
            assert isinstance(known, dict), "epochs are recorded here"
            self._store.replace_checkpoint(self.region, epoch.number, known, {**known, "state": None, "saved": False})
            self._forgotten.add(epoch.number)
            if epoch.state is not None and (epoch.state != epoch.folder or epoch.number < self._results_from):
                self.drop(epoch.state)

    def _forget(self) -> None:
        """Forget the epochs of which nothing is left. So the next process does not delete them again."""
        if (below := min(self._results_from, self._states_from)) > self._forgotten_below:
            self._store.forget_epochs(DECISION, self.region, below)
            self._settled = tuple(e for e in self._settled if e.number >= below)
            self._forgotten_below = below

    def new_folder(self, number: EpochNumber, what: str = "") -> str:
        """Return a new folder name for an epoch."""
        return "-".join(filter(None, (str(number), uuid.uuid4().hex[:12], what)))

    def drop(self, folder: str) -> None:
        """Delete a folder that no epoch uses. Commands that read it find all of it or nothing."""
        self.path(folder).remove()
        self._slices.pop(folder, None)
        self._synced.pop(folder, None)
        self._checked.pop(folder, None)

    def drop_unrecorded(self, folders: Iterable[str]) -> None:
        """Delete those of these folders that no epoch uses. The store did not answer when their epochs were recorded.

        Raises: StoreError: it still does not answer; nothing was deleted.
        """
        self._store.await_writers()
        self.drop_unused(folders)

    def drop_unused(self, folders: Iterable[str]) -> None:
        """Delete those of these folders that no epoch uses."""
        used = self.used()
        for folder in folders:
            if folder not in used:
                self.drop(folder)

    def used(self) -> set[str]:
        """Return the names of the folders that epochs use."""
        return {name for e in self.epochs() for name in (e.folder, e.state) if name is not None} | {_FILES}


def _epoch(decided: Decision, made: CheckpointRecord | None, starts: Starts) -> Epoch:
    content, complete = decided.content, dict[str, Any]()
    if made is not None:
        complete = {"made_at_s": made.made_at_s} | made.metadata
        if "refused" in complete:
            complete["refused"] = {LogId(log): tuple(map(Offset, n)) for log, n in complete["refused"].items()}
    first = positions_from_json(content["first"])
    absent = starts.absent(first)
    return Epoch(
        number=EpochNumber(decided.number),
        first=first | absent,
        last=positions_from_json(content["last"]) | absent,
        then=positions_from_json(content.get("then", content["last"])) | absent,
        absent=frozenset(absent),
        slice=content.get("slice"),
        views={LogId(view): EpochNumber(number) for view, number in content["views"].items()},
        cut_at_s=content["cut_at_s"],
        decided_at_s=decided.made_at_s,
        may_be_out=content.get("may_be_out", False),
        **complete,
    )


def _is_in(epoch: Epoch, void: tuple[PartitionRange, ...]) -> bool:
    return any(v.covers(epoch.number) for v in void)
