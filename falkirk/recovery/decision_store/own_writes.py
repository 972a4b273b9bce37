"""Own writes: shows an owner that the database has lost writes which it had confirmed.

A server may be replaced by a replica that lacks the last commits, and somebody may restore an older copy beside a
running application. The owner would decide anew what it has decided before. A sink that has an epoch would drop another
epoch with its number. So each process of an owner counts its writes in a row of its own, and compares that row with its
memory before the next write. A start compares the store with the sinks instead (`SINK_AHEAD`).
"""

import secrets

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import STORE_FELL_BACK
from falkirk.recovery.decision_store.tables import meta

#: The first part of the names of rows with such counts.
_PREFIX = "writes "


class OwnWrites:
    """The count of one process's writes, from when it became the owner. It needs no lock: writes take turns.

    Args: where: the database's name in errors. role: an owner has at most one process of each role. The first write of
        a process deletes the counts of its role, so a former process that still lives writes nothing more.
    """

    def __init__(self, where: object, role: str) -> None:
        self._where, self._role = where, f"{_PREFIX}{role} "
        self._name = f"{self._role}{secrets.token_hex(8)}"
        #: The count after the last write that the database has confirmed, and after the last one that was tried.
        self._confirmed = self._tried = 0

    def count(self, db: sql.Connection) -> int:
        """Count one more write in an open transaction; return the count, for `confirm`.

        Raises: StoreError: `STORE_FELL_BACK`: the database has an older count than it had confirmed.
        """
        known = db.execute(sql.select(meta.c.value).where(meta.c.name == self._name)).scalar()
        there = 0 if known is None else int(known)
        if not self._confirmed <= there <= self._tried:  # it has those between the two if their answers were lost
            raise STORE_FELL_BACK.error(where=self._where, lost=self._confirmed - there)
        self._tried += 1
        if known is None:
            db.execute(meta.delete().where(meta.c.name.startswith(self._role)))
            db.execute(meta.insert().values(name=self._name, value=str(self._tried)))
        else:
            db.execute(meta.update().where(meta.c.name == self._name).values(value=str(self._tried)))
        return self._tried

    def confirm(self, count: int) -> None:
        """Note that the database has confirmed a write."""
        self._confirmed = max(self._confirmed, count)


def forget_all(db: sql.Connection) -> None:
    """Delete the counts of all former owners, in the transaction of the next one."""
    db.execute(meta.delete().where(meta.c.name.startswith(_PREFIX)))
