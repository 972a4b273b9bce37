"""Generation: the number of the home's present owner. The store refuses writes of an older owner.

Locks and process lists can miss an owner: an orphaned host, a home on a shared file system, a store that two machines
reach. So each new owner takes the next generation, and each of its writes compares that number in the same transaction.
A write is the only one from its first statement on (engine.py), so the owner can't change between the comparison and
the commit. A standby coordinator or a lease needs no other fence, because each new owner takes the next generation.
"""

from typing import Any

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import HOME_TAKEN_OVER, STORE_FELL_BACK
from falkirk.recovery.decision_store import own_writes
from falkirk.recovery.decision_store.tables import meta
from falkirk.recovery.decision_store.values import dump, load

_ROW = meta.c.name == "generation"


def take_next(db: sql.Connection, holder: str) -> int:
    """Record the next generation and its holder; return its number, from 1."""
    known = _present(db)
    number = 1 if known is None else int(known["generation"]) + 1
    db.execute(meta.delete().where(_ROW))
    db.execute(meta.insert().values(name="generation", value=dump({"generation": number, "holder": holder})))
    own_writes.forget_all(db)
    return number


def check_generation(db: sql.Connection, generation: int, where: object) -> None:
    """Refuse an owner whose generation is not the present one.

    Raises: StoreError: `HOME_TAKEN_OVER`, with the `generation` of the caller, the `present` one and its `holder`.
        `STORE_FELL_BACK`: the present one is older.
    """
    known = _present(db)
    present, holder = (0, "nobody") if known is None else (int(known["generation"]), str(known["holder"]))
    if present < generation:
        raise STORE_FELL_BACK.error(where=where, lost=generation - present)
    if present != generation:
        raise HOME_TAKEN_OVER.error(where=where, generation=generation, present=present, holder=holder)


def present(db: sql.Connection) -> tuple[int, str] | None:
    """Return the present generation and its holder; None: there was no owner yet."""
    known = _present(db)
    return None if known is None else (int(known["generation"]), str(known["holder"]))


def _present(db: sql.Connection) -> Any:
    text = db.execute(sql.select(meta.c.value).where(_ROW)).scalar()
    return None if text is None else load(text)
