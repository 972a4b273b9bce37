"""Lease: a number that the owner of a home increases, so that a waiting process can see whether the owner lives.

No decision depends on a time in the store, so clocks of two machines are never compared. Each side measures with its
own clock how long the number has stood still. A new owner gets the lease and the next generation in one transaction,
and only if the number is still the one that it has watched. So of several waiting processes exactly one becomes the
owner. The times in the store are for people who ask for the status.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import sqlalchemy as sql

from falkirk.platform.times import seconds_since_boot
from falkirk.recovery.decision_store import generation
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import meta
from falkirk.recovery.decision_store.values import dump, load

_ROW = meta.c.name == "lease"
#: The first part of the names of rows for waiting processes.
_WAITING = "waiting "
#: The row of a waiting process that has not written for this time is deleted by the next one that writes.
_FORGOTTEN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The present owner, and the number that it increases.

    Args: beat: the number; -1: the owner runs without a lease. lasts_s: the owner has died if the number stands still
        for longer; 0: the owner has released the home. machine, pid, began: identify the owner's process, as
        `falkirk.platform.processes` does. at_s: when the number was increased, by the owner's clock; never compared.
    """

    generation: int
    holder: str
    beat: int
    lasts_s: float
    machine: str = ""
    pid: int = 0
    began: str = ""
    at_s: float = field(default=0.0, compare=False)

    @property
    def is_kept(self) -> bool:
        """Whether the owner renews it while it lives. If not, only the lock of the home shows whether it lives."""
        return self.beat >= 0 and self.lasts_s > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A process that waits for the home. Args: at_s: when it last said so, by its own clock."""

    holder: str
    at_s: float


class LeaseStore(Part):
    """The lease of a home, and the processes that wait for it."""

    def lease(self) -> Lease | None:
        """Return the lease of the present owner; None: the home has never had an owner."""
        with self._reading() as db:
            return _present(db)

    def take_lease(
        self, holder: str, seen: Lease | None, lasts_s: float, *, machine: str = "", pid: int = 0, began: str = "",
        key: str = "", clock: Callable[[], float] = seconds_since_boot,
    ) -> float | None:  # fmt: skip
        """Become the owner, as `take_charge`, unless the lease has changed.

        Args: seen: the lease that has stood still. machine, pid, began: as of `Lease`. key: as of `note_waiting`; this
            process waits no longer. clock: returns seconds.
        Returns: when the lease began, by the clock: nobody has seen it before. The wait for other writers came earlier.
            None: the lease has changed.
        """
        with self._writing() as db:
            began_s = clock()
            if _present(db) != seen:
                return None
            number = generation.take_next(db, holder)
            mine = Lease(
                generation=number, holder=holder, beat=0, lasts_s=lasts_s, machine=machine, pid=pid, began=began,
                at_s=self._clock(),
            )  # fmt: skip
            _record(db, mine)
            db.execute(meta.delete().where(meta.c.name == _WAITING + key))
        self._own_from(number)
        return began_s

    def renew_lease(self, clock: Callable[[], float] = seconds_since_boot) -> float:
        """Increase the number of the lease; return when it began anew, as `take_lease`.

        Raises: StoreError: `HOME_TAKEN_OVER`.
        """
        with self._writing() as db:
            began_s = clock()
            lease = _present(db)
            assert lease is not None, "the owner took a lease"
            _record(db, replace(lease, beat=lease.beat + 1, at_s=self._clock()))
        return began_s

    def release_lease(self) -> None:
        """Let a waiting process take over at once. Raises: StoreError: `HOME_TAKEN_OVER`."""
        with self._writing() as db:
            lease = _present(db)
            assert lease is not None, "the owner took a lease"
            _record(db, replace(lease, beat=lease.beat + 1, lasts_s=0.0, at_s=self._clock()))

    def waiting(self) -> tuple[Waiting, ...]:
        """Return the processes that have said that they wait, the newest first."""
        with self._reading() as db:
            texts = db.execute(sql.select(meta.c.value).where(meta.c.name.startswith(_WAITING))).scalars().all()
        found = [Waiting(holder=str(each["holder"]), at_s=float(each["at_s"])) for each in map(load, texts)]
        return tuple(sorted(found, key=lambda each: (-each.at_s, each.holder)))

    def note_waiting(self, key: str, holder: str) -> None:
        """Say that a process waits for the home. It is not the owner, so nothing depends on this.

        It does not queue with the writers. If it stood still in its turn, the owner could not renew its lease.

        Args: key: identifies the process among those that wait.
        """
        with self._reading() as db:
            db.execute(meta.delete().where(meta.c.name == _WAITING + key))
            rows = db.execute(sql.select(meta.c.name, meta.c.value).where(meta.c.name.startswith(_WAITING))).all()
            old = [name for name, text in rows if self._clock() - float(load(text)["at_s"]) > _FORGOTTEN_S]
            db.execute(meta.delete().where(meta.c.name.in_(old)))
            db.execute(meta.insert().values(name=_WAITING + key, value=dump({"holder": holder, "at_s": self._clock()})))

    def forget_waiting(self, key: str) -> None:
        """Say that a process waits no longer."""
        with self._reading() as db:
            db.execute(meta.delete().where(meta.c.name == _WAITING + key))


def _record(db: sql.Connection, lease: Lease) -> None:
    names = ("generation", "beat", "lasts_s", "machine", "pid", "began", "at_s")
    db.execute(meta.delete().where(_ROW))
    db.execute(meta.insert().values(name="lease", value=dump({name: getattr(lease, name) for name in names})))


def _present(db: sql.Connection) -> Lease | None:
    owner = generation.present(db)
    if owner is None:
        return None
    number, holder = owner
    text = db.execute(sql.select(meta.c.value).where(_ROW)).scalar()
    found = None if text is None else load(text)
    if found is None or found["generation"] != number:  # an owner without a lease came after the one with this lease
        return Lease(generation=number, holder=holder, beat=-1, lasts_s=0.0)
    return Lease(
        generation=number,
        holder=holder,
        beat=int(found["beat"]),
        lasts_s=float(found["lasts_s"]),
        machine=str(found.get("machine", "")),
        pid=int(found.get("pid", 0)),
        began=str(found.get("began", "")),
        at_s=float(found.get("at_s", 0.0)),
    )
