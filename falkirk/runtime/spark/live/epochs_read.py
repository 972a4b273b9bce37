"""Epochs read: which epochs of views a live region may have read, by checkpoint.

A region notes an epoch before any record can read it, with the number of the checkpoint that comes next. So of a
checkpoint, the last note for it or an earlier one has the newest epochs that its results depend on. After a restart,
the first note is for the checkpoint after the restored one. It is later than all notes for checkpoints that were taken
back, so these no longer matter.
"""

from collections.abc import Collection, Mapping, Sequence

from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.values import Decision
from falkirk.theory.ids import BatchId, EpochNumber, LogId, Offset, Positions
from falkirk.theory.times import Natural

_KIND = "epochs of views"


class EpochsRead:
    """The notes of one region. Args: region: its name. views: the logs of its views; a former program had others."""

    def __init__(self, region: str, store: Store, views: Collection[LogId]) -> None:
        self._region, self._store, self._views = region, store, views

    def note(self, since: BatchId, epochs: Mapping[LogId, EpochNumber]) -> None:
        """Note the epochs that records may read from now on. Args: since: the next checkpoint.

        Raises: StoreError: nothing may read them.
        """
        newest = self._store.newest_decision(_KIND, self._region)
        number = 0 if newest is None else newest.number + 1
        self._store.record_decision(_KIND, self._region, number, {"since": since, "epochs": dict(epochs)})

    def upto(self, checkpoint: int) -> dict[LogId, EpochNumber]:
        """Return the newest epochs on which the results of a checkpoint may depend."""
        found = self._last(checkpoint)
        return {} if found is None else self._epochs(found)

    def between(self, first: int, last: int | None) -> dict[LogId, tuple[EpochNumber, ...]]:
        """Return the epochs of each view that results between two checkpoints may have read, oldest first.

        Args: first: the checkpoint before the results. last: the first one that covers them; None: there is none yet.
        """
        notes = self._store.decisions(_KIND, self._region)
        before = _newest(notes, first)
        oldest = 0 if before is None else before.number
        epochs = dict[LogId, set[EpochNumber]]()
        for note in notes:
            if note.number >= oldest and (last is None or note.content["since"] <= last):
                for log, epoch in self._epochs(note).items():
                    epochs.setdefault(log, set()).add(epoch)
        return {log: tuple(sorted(found)) for log, found in epochs.items()}

    def are_within(self, checkpoint: int, ends: Mapping[LogId, Natural]) -> bool:
        """Return whether no result since a checkpoint may depend on an epoch at or beyond one of these ends."""
        oldest = self._last(checkpoint)
        notes = self._store.decisions(_KIND, self._region, 0 if oldest is None else oldest.number)
        return all(epoch < ends[log] for note in notes for log, epoch in self._epochs(note).items())

    def keep_from(self, checkpoint: int) -> None:
        """Delete the notes that no checkpoint from this one on needs."""
        if (oldest := self._last(checkpoint)) is not None:
            self._store.forget_epochs(_KIND, self._region, EpochNumber(oldest.number))

    def _last(self, checkpoint: int) -> Decision | None:
        return _newest(self._store.decisions(_KIND, self._region), checkpoint)

    def _epochs(self, note: Decision) -> dict[LogId, EpochNumber]:
        epochs = note.content["epochs"].items()
        return {LogId(log): EpochNumber(epoch) for log, epoch in epochs if log in self._views}


def _newest(notes: Sequence[Decision], checkpoint: int) -> Decision | None:
    """Return the last note for a checkpoint or an earlier one."""
    return next((note for note in reversed(notes) if note.content["since"] <= checkpoint), None)


def as_positions(epochs: Mapping[LogId, EpochNumber], more: int) -> Positions:
    """Return epochs as positions in their logs. Args: more: 1: the position after the epoch, 0: before it."""
    return {log: {0: Offset(epoch + more)} for log, epoch in epochs.items()}
