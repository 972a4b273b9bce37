"""Lease: a number that the owner of a home increases, so that a waiting process can see whether the owner lives.

The store holds no time, so clocks of two machines are never compared. Each side measures with its own clock how long
the number has stood still. A new owner gets the lease and the next generation in one transaction, and only if the
number is still the one that it has watched. So of several waiting processes exactly one becomes the owner.
"""

from dataclasses import dataclass

import sqlalchemy as sql

from falkirk.store import generation
from falkirk.store.part import Part
from falkirk.store.tables import meta
from falkirk.store.values import dump, load

_ROW = meta.c.name == "lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The present owner, and the number that it increases.

    Args: beat: the number; -1: the owner runs without a lease. lasts_s: the owner has died if the number stands still
        for longer; 0: the owner has released the home.
    """

    generation: int
    holder: str
    beat: int
    lasts_s: float


class LeaseStore(Part):
    """The lease of a home."""

    def lease(self) -> Lease | None:
        """Return the lease of the present owner; None: the home has never had an owner."""
        with self._reading() as db:
            return _present(db)

    def take_lease(self, holder: str, seen: Lease | None, lasts_s: float) -> bool:
        """Become the owner, as `take_charge`, unless the lease has changed; return whether this process is the owner.

        Args: seen: the lease that has stood still.
        """
        with self._writing() as db:
            if _present(db) != seen:
                return False
            number = generation.take_next(db, holder)
            _record(db, number, 0, lasts_s)
        self.generation = number
        return True

    def renew_lease(self) -> None:
        """Increase the number of the lease. Raises: StoreError: `HOME_TAKEN_OVER`."""
        with self._writing() as db:
            lease = _present(db)
            assert lease is not None, "the owner took a lease"
            _record(db, lease.generation, lease.beat + 1, lease.lasts_s)

    def release_lease(self) -> None:
        """Let a waiting process take over at once. Raises: StoreError: `HOME_TAKEN_OVER`."""
        with self._writing() as db:
            lease = _present(db)
            assert lease is not None, "the owner took a lease"
            _record(db, lease.generation, lease.beat + 1, 0.0)


def _record(db: sql.Connection, number: int, beat: int, lasts_s: float) -> None:
    db.execute(meta.delete().where(_ROW))
    db.execute(meta.insert().values(name="lease", value=dump({"generation": number, "beat": beat, "lasts_s": lasts_s})))


def _present(db: sql.Connection) -> Lease | None:
    owner = generation.present(db)
    if owner is None:
        return None
    number, holder = owner
    text = db.execute(sql.select(meta.c.value).where(_ROW)).scalar()
    found = None if text is None else load(text)
    if found is None or found["generation"] != number:  # an owner without a lease came after the one with this lease
        return Lease(generation=number, holder=holder, beat=-1, lasts_s=0.0)
    return Lease(generation=number, holder=holder, beat=int(found["beat"]), lasts_s=float(found["lasts_s"]))
