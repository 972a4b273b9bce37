"""Functions as a user writes them, which processes beside the tasks of live regions import.

Each process imports this module, so it imports little: importing a module of tests takes a second of CPU time.
"""

from typing import Any

from pyspark.sql import Row

import falkirk as fk

LIMIT = 5_000


@fk.deterministic(because="it depends on the row alone")
def spread(row: Row) -> list[dict[str, Any]]:
    """Return n % 4 results, and fail on some rows."""
    if row.n % 10 == 7:
        raise ValueError(f"no {row.n}")
    double = {"x": row.n / 2, "words": [row.id, None]}
    tags = None if row.tags is None else dict(row.tags)
    return [{"id": row.id, "n": row.n * 10 + i, "at": row.at, "tags": tags, "double": double} for i in range(row.n % 4)]


@fk.deterministic
def doubled(row: Row) -> dict[str, Any]:
    """Fail on the results of some records, after the records were counted."""
    if row["count"] % 10 == 7:
        raise ValueError(f"no {row['count']}")
    return {"id": row.id, "twice": 2 * row["count"]}


@fk.deterministic
def totalled(row: Row, state: Row | None) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the sum of a key's numbers, which begins again after every twentieth record, and fail on some rows."""
    seen, total = ([], 0) if state is None else (state.seen, state.newest["total"])
    if row.n % 10 == 7:
        raise ValueError(f"no {row.n} after {len(seen)}")
    digits = {} if state is None else dict(state.digits)  # a map is a list of pairs, as in a row
    last = None if state is None else state.newest["at"]
    results = [{"id": row.id, "n": row.n, "total": total + row.n, "before": last, "seen": seen, "digits": digits}] * (
        1 + row.n % 2
    )
    if len(seen) == 19:
        return results, None
    digit = str(row.n % 10)
    return results, {
        "seen": [*seen, row.n], "newest": {"at": row.at, "total": total + row.n},
        "digits": {**digits, digit: digits.get(digit, 0) + 1},
    }  # fmt: skip


@fk.deterministic
def counted_while_there(row: Row, state: Row | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return how many records of a key have come since its state expired, and fail on some rows."""
    if row.n % 10 == 7:
        raise ValueError(f"no {row.n}")
    count = 1 if state is None else state.seen + 1
    return {"id": row.id, "n": row.n, "count": count}, {"seen": count}


@fk.deterministic(because="it depends on its arguments alone")
def described(n, at, tags):  # type: ignore[no-untyped-def]  # PySpark would guess a kind of UDF from hints
    return {"text": f"{n} at {at:%H:%M:%S.%f}", "tags": tags, "days": [at.date(), None]}


@fk.deterministic
def is_wanted(n):  # type: ignore[no-untyped-def]
    if n % 10 == 7 and n < LIMIT:
        raise ValueError(f"no {n}")
    return n % 3 != 0


@fk.deterministic
def half(n):  # type: ignore[no-untyped-def]
    return n / 2
