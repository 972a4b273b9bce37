"""Functions as a user writes them, which Spark's workers import: so this module imports nothing."""

from typing import Any


def chain(row: Any, state: Any) -> tuple[Any, Any]:
    """Return a result that depends on all that came before it of its key, in order."""
    after = ((0 if state is None else state.chain) * 31 + row.n) % 1_000_003
    return {"user": row.user, "chain": after, "n": row.n}, {"chain": after}
