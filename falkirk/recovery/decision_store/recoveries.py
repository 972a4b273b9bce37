"""Recoveries: stores the rollback in progress, so that an interrupted one is finished as decided.

The decision is the first step, and is made once. If a coordinator dies while it restores, the next one finds the
decision and completes it, even if other parts have failed since. At most one recovery is unfinished.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import RECOVERY_BACKWARDS, RECOVERY_UNFINISHED
from falkirk.recovery.decision_store.logs import record_void
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import recoveries
from falkirk.recovery.decision_store.values import Recovery, RecoveryState, dump, load, printable
from falkirk.theory.ids import CheckpointNumber, LogId, Offset

_STATES: tuple[RecoveryState, ...] = get_args(RecoveryState)


class RecoveryStore(Part):
    """The part of the store for the recovery protocol."""

    def open_recovery(
        self,
        reason: str,
        decided: Mapping[str, CheckpointNumber | None],
        *,
        voids: Sequence[tuple[LogId, int, Offset, Offset]] = (),
    ) -> int:
        """Record the checkpoint to which each processor returns (None: it stays), before any does; return the number.

        Args: voids: the records that become void, recorded in the same transaction: (topic, partition, first,
            last exclusive).
        Raises: StoreError: `RECOVERY_UNFINISHED`: another recovery is in progress, and must end first. InternalError:
            as `record_void`.
        """
        text = dump(dict(decided))
        with self._writing() as db:
            under_way = db.execute(sql.select(recoveries.c.recovery).where(recoveries.c.state != "done")).scalar()
            if under_way is not None:
                raise RECOVERY_UNFINISHED.error(where=self._database.where, recovery=under_way)
            number = int(db.execute(sql.select(sql.func.max(recoveries.c.recovery))).scalar() or 0) + 1
            db.execute(
                recoveries.insert().values(
                    recovery=number,
                    reason=printable(reason),
                    decided=text,
                    state="decided",
                    begun_at_s=self._clock(),
                )
            )
            for topic, partition, first, last_exclusive in voids:
                record_void(db, topic, partition, first, last_exclusive)
        return number

    def advance_recovery(self, recovery: int, state: RecoveryState) -> None:
        """Record the progress of a recovery. Repeating the present state changes nothing.

        Raises: InternalError: `RECOVERY_BACKWARDS`: it is in a later state, or there is no such recovery.
        """
        with self._writing() as db:
            known = db.execute(sql.select(recoveries.c.state).where(recoveries.c.recovery == recovery)).scalar()
            if known not in _STATES or _STATES.index(state) < _STATES.index(known):
                raise RECOVERY_BACKWARDS.error(where=self._database.where, known=known, asked=state, recovery=recovery)
            if state != known:
                ended = {"ended_at_s": self._clock()} if state == "done" else {}
                db.execute(recoveries.update().where(recoveries.c.recovery == recovery).values(state=state, **ended))

    def newest_recovery(self) -> Recovery | None:
        """Return the last recovery, or None if there has been none."""
        with self._reading() as db:
            row = db.execute(sql.select(recoveries).order_by(recoveries.c.recovery.desc()).limit(1)).one_or_none()
            if row is None:
                return None
            return Recovery(
                recovery=row.recovery,
                reason=row.reason,
                decided=load(row.decided),
                state=row.state,
                begun_at_s=row.begun_at_s,
                ended_at_s=row.ended_at_s,
            )

    def unfinished_recovery(self) -> Recovery | None:
        """Return the recovery that must be finished, if any; it is always the last one."""
        newest = self.newest_recovery()
        return None if newest is None or newest.state == "done" else newest
