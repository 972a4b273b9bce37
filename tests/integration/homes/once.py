"""The verdict on an application that numbers its epochs: every result is there once, from the whole state before it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any


def assert_each_once(rows: Sequence[dict[str, Any]], sent: int) -> None:
    """Check the results for the numbers from 0 to `sent`.

    Args: rows: each has a number `n`, `twice` the number, and how many numbers came `before` its epoch.
    """
    assert Counter(row["n"] for row in rows) == Counter(range(sent))
    assert all(row["twice"] == 2 * row["n"] for row in rows)
    for before in {row["before"] for row in rows}:
        first = min(row["n"] for row in rows if row["before"] == before)
        assert first == before, "the epoch has read a state that lacks numbers before it, or has too many"
