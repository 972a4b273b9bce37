"""Checkpoint copies: the record of the checkpoints of live regions whose files are in an object store.

A checkpoint counts once it is recorded here: the texts of Spark's logs, and the names of the state files in the object
store. Its files are uploaded before. The states of successive checkpoints share most files. So each file has one row,
with the first checkpoint that has it and, once Spark has deleted it on the machine, the first one that does not. A
checkpoint n has the files with first ≤ n < gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sql

from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import decisions
from falkirk.recovery.decision_store.values import DamagedValue, dump, load
from falkirk.theory.ids import BatchId

#: The kind of decision with the texts of a checkpoint; how the kind begins that has the state files of a region.
_COPY, _FILES = "checkpoint copy", "state files of "


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """A checkpoint in an object store. Args: texts: of files of Spark's, by their paths. made_at_s: Spark's time."""

    batch: BatchId
    texts: Mapping[str, str]
    made_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """A state file in an object store.

    Args: path: in Spark's checkpoint. folder: of the object, in the folder of the region. size, checksum: of its
        content, in bytes and as CRC-32; None: an executor has written it, and only its size is known. first: the
        oldest checkpoint that has it. gone: the oldest one after that without it; None: the newest has it.
    """

    path: str
    folder: str
    size: int
    checksum: int | None
    first: BatchId
    gone: BatchId | None = None

    @property
    def place(self) -> str:
        """The path of the object in the folder of the region."""
        return f"{self.folder}/{self.path}"

    def is_of(self, batch: BatchId) -> bool:
        """Return whether a checkpoint has this file."""
        return self.first <= batch and (self.gone is None or batch < self.gone)


class CheckpointCopyStore(Part):
    """The part of the store for checkpoints of live regions in an object store."""

    def record_copy(
        self, region: str, copy: CheckpointCopy, added: Iterable[StateFile], gone: Iterable[StateFile]
    ) -> None:
        """Record a checkpoint whose files are uploaded, in one write. A repetition changes nothing.

        Args: added: the files that no earlier checkpoint has. gone: files of earlier ones that this one does not have.
        """
        now_s = self._clock()
        changed = [*added, *(replace(file, gone=copy.batch) for file in gone)]
        content = dump({"texts": dict(copy.texts), "made_at_s": copy.made_at_s})
        rows = [{"kind": _COPY, "name": region, "number": copy.batch, "content": content, "made_at_s": now_s}]
        rows += [
            {
                "kind": f"{_FILES}{region}", "name": file.path, "number": file.first,
                "content": dump([file.folder, file.size, file.checksum, file.gone]), "made_at_s": now_s,
            }
            for file in changed
        ]  # fmt: skip
        with self._writing() as db:
            db.execute(_delete_one(), [{f"old_{key}": row[key] for key in ("kind", "name", "number")} for row in rows])
            db.execute(decisions.insert(), rows)

    def checkpoint_copies(self, region: str) -> dict[BatchId, CheckpointCopy]:
        """Return the recorded checkpoints of a region, oldest first."""
        rows = self._rows(
            (_COPY, region),
            lambda: (
                sql.select(decisions).where(decisions.c.kind == _COPY, decisions.c.name == region)
                .order_by(decisions.c.number)
            ),
            _copy,
        )  # fmt: skip
        return {copy.batch: copy for copy in rows}

    def state_files(self, region: str) -> tuple[StateFile, ...]:
        """Return all recorded state files of a region, by path."""
        mine = decisions.c.kind == f"{_FILES}{region}"
        with self._reading() as db:
            query = sql.select(decisions).where(mine).order_by(decisions.c.name, decisions.c.number)
            return tuple(_file(row) for row in db.execute(query))

    def rewind_copies(self, region: str, batch: BatchId) -> None:
        """Make a checkpoint, or -1, the newest: forget later ones, and the files that only they have. Idempotent."""
        mine, later = decisions.c.kind == f"{_FILES}{region}", decisions.c.number > batch
        copies = (decisions.c.kind == _COPY) & (decisions.c.name == region)
        with self._writing() as db:
            db.execute(decisions.delete().where(copies, later))
            db.execute(decisions.delete().where(mine, later))
            for row in db.execute(sql.select(decisions).where(mine)).all():
                file = _file(row)
                if file.gone is not None and file.gone > batch:
                    same = mine & (decisions.c.name == file.path) & (decisions.c.number == file.first)
                    content = dump([file.folder, file.size, file.checksum, None])
                    db.execute(decisions.update().where(same).values(content=content))

    def keep_copies(self, region: str, batches: Sequence[BatchId], unneeded: Sequence[StateFile]) -> None:
        """Forget the checkpoints before the last of these that are not among them. Idempotent.

        Args: unneeded: files that no checkpoint has after that. Once they are forgotten, they can be deleted.
        """
        copies = (decisions.c.kind == _COPY) & (decisions.c.name == region)
        with self._writing() as db:
            db.execute(
                decisions.delete().where(copies, decisions.c.number < batches[-1], decisions.c.number.notin_(batches))
            )
            if unneeded:
                kind = f"{_FILES}{region}"
                keys = [{"old_kind": kind, "old_name": file.path, "old_number": file.first} for file in unneeded]
                db.execute(_delete_one(), keys)


def _delete_one() -> sql.Delete:
    """Return a statement that deletes a row by its key."""
    names = ("kind", "name", "number")
    return decisions.delete().where(*(decisions.c[name] == sql.bindparam(f"old_{name}") for name in names))


def _copy(row: Any) -> CheckpointCopy:
    try:
        content = load(row.content)
        texts = {str(name): str(text) for name, text in content["texts"].items()}
        return CheckpointCopy(batch=BatchId(row.number), texts=texts, made_at_s=float(content["made_at_s"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedValue(f"{row.content!r:.80} is no checkpoint") from error


def _file(row: Any) -> StateFile:
    try:
        folder, size, checksum, gone = load(row.content)
        return StateFile(
            path=str(row.name), folder=str(folder), size=int(size), first=BatchId(row.number),
            checksum=None if checksum is None else int(checksum), gone=None if gone is None else BatchId(int(gone)),
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise DamagedValue(f"{row.content!r:.80} is no state file") from error
