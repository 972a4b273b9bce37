"""Joins: the declaration of a join of two streams with event time: pairs of records, and records without a partner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from falkirk.declare.cut import SPAN_S_MAX
from falkirk.declare.policy import Duration, duration_s
from falkirk.declare.watermark import Watermark, seconds
from falkirk.errors.conditions.declare import JOIN_INVALID
from falkirk.errors.location import SourceLocation

#: The kinds of joins, by PySpark's names for them.
KINDS = {
    "inner": "inner",
    **dict.fromkeys(("left", "leftouter", "left_outer"), "left"),
    **dict.fromkeys(("right", "rightouter", "right_outer"), "right"),
    **dict.fromkeys(("outer", "full", "fullouter", "full_outer"), "full"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedJoin:
    """A join of two streams that both have a `withWatermark`.

    Args: on: the names of the columns that are equal in a pair, or the condition of a pair. how: "inner", "left",
        "right" or "full". within_us: the times of a pair differ by at most this; None: the condition limits them.
        names: by which the condition names the streams. watermarks: of both streams.
    """

    on: Any
    how: str
    within_us: int | None
    names: tuple[str, str]
    watermarks: tuple[Watermark, Watermark]

    @property
    def keeps(self) -> tuple[bool, bool]:
        """Whether a record of either stream without a partner is a result."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def shared(self) -> frozenset[str]:
        """The columns that both streams have as one, by their names in lower case."""
        return frozenset(name.casefold() for name in self.on) if isinstance(self.on, tuple) else frozenset()

    def __str__(self) -> str:
        on = ", ".join(self.on) if isinstance(self.on, tuple) else str(self.on._jc.toString())
        within = "" if self.within_us is None else f" within {seconds(self.within_us)}"
        times = " and ".join(map(str, self.watermarks))
        return f"{self.how} join of {self.names[0]} and {self.names[1]} on {on}{within}, times {times}"


def timed_join(
    on: object,
    how: object,
    within: Duration | None,
    names: tuple[str, str],
    watermarks: tuple[Watermark | None, Watermark | None],
    where: SourceLocation,
) -> TimedJoin:
    """Return the declaration of a join. Args: on: as PySpark's `join` takes it.

    Raises: DefinitionError: `JOIN_INVALID`, `DURATION_MALFORMED`.
    """
    first, second = watermarks
    kind = KINDS.get(how) if isinstance(how, str) else None
    if kind is None:
        raise JOIN_INVALID.error(where=where, reason=f"how={how!r} is none of {', '.join(KINDS)}")
    if first is None or second is None:
        missing = names[0] if first is None else names[1]
        raise JOIN_INVALID.error(where=where, reason=f"{missing} has no withWatermark(), which tells its event time")
    within_s = None if within is None else duration_s(within)
    if within_s is not None and within_s > SPAN_S_MAX:
        raise JOIN_INVALID.error(where=where, reason=f"within={within!r} is too long")
    return TimedJoin(
        on=_condition(on, where), how=kind, within_us=None if within_s is None else round(within_s * 1_000_000),
        names=names, watermarks=(first, second),
    )  # fmt: skip


def are_names(on: object) -> bool:
    """Return whether `on` is the name of a column, or several."""
    return isinstance(on, str) or (isinstance(on, Sequence) and bool(on) and all(isinstance(each, str) for each in on))


def _condition(on: Any, where: SourceLocation) -> Any:
    if are_names(on):
        return (on,) if isinstance(on, str) else tuple(on)
    several = [on] if hasattr(on, "_jc") else list(on) if isinstance(on, list | tuple) else []
    if not several or not all(hasattr(each, "_jc") for each in several):
        raise JOIN_INVALID.error(where=where, reason=f"on={on!r} is neither names of columns nor a condition")
    whole = several[0]
    for each in several[1:]:
        whole = whole & each
    return whole
