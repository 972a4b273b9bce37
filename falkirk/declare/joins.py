"""Joins: the declaration of a join of two streams with event time: of all pairs, or of each record as of its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from falkirk.declare.cut import SPAN_S_MAX
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import Node, Step, alias_of, is_ordered, joined_by, roots_of, steps_of, steps_since
from falkirk.declare.policy import Duration, duration_s
from falkirk.declare.watermark import Watermark, interval_text
from falkirk.declare.windows import unchanged
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.declare import JOIN_INVALID
from falkirk.errors.location import SourceLocation

#: The kinds of joins, by PySpark's names for them.
_KINDS = {
    "inner": "inner",
    **dict.fromkeys(("left", "leftouter", "left_outer"), "left"),
    **dict.fromkeys(("right", "rightouter", "right_outer"), "right"),
    **dict.fromkeys(("outer", "full", "fullouter", "full_outer"), "full"),
}
#: Those of joins as of the time of a record.
_KINDS_ASOF = {name: kind for name, kind in _KINDS.items() if kind in ("inner", "left")}
#: Calls that have the form that they need, by whether the join is as of the time of a record.
_EXAMPLES = {
    False: 'left.join(right, F.expr("left.id = right.id AND right.at BETWEEN left.at AND left.at + INTERVAL 10 '
    'MINUTES"), "left")',
    True: 'left.join_asof(right, on="id", how="left"), where on= names the key',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedJoin:
    """A join of two streams that both have a `withWatermark`.

    Args: on: the names of the columns that are equal in a pair, or the condition of a pair. how: "inner", "left",
        "right" or "full". within_us: the times of a pair differ by at most this; None: the condition limits them.
        names: by which the condition names the streams. watermarks: of both streams. as_of: a left record has at most
            one partner: the newest right record of its key that is not later.
    """

    on: Any
    how: str
    within_us: int | None
    names: tuple[str, str]
    watermarks: tuple[Watermark, Watermark]
    as_of: bool = False

    @property
    def method(self) -> str:
        """The method of a stream that declares it."""
        return _method(as_of=self.as_of)

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
        within = "" if self.within_us is None else f" within {interval_text(self.within_us)}"
        times = " and ".join(map(str, self.watermarks))
        kind = f"{self.how} as-of join" if self.as_of else f"{self.how} join"
        return f"{kind} of {self.names[0]} and {self.names[1]} on {on}{within}, times {times}"


def declared_join(
    on: object,
    how: object,
    within: Duration | None,
    names: tuple[str, str],
    watermarks: tuple[Watermark | None, Watermark | None],
    where: SourceLocation,
    *,
    as_of: bool = False,
) -> TimedJoin:
    """Return the declaration of a join. Args: on: as PySpark's `join` takes it; names alone, if the join is `as_of`.

    Raises: DefinitionError: `JOIN_INVALID`, `DURATION_MALFORMED`.
    """
    first, second = watermarks
    kinds, limit = (_KINDS_ASOF, "tolerance") if as_of else (_KINDS, "within")
    kind = kinds.get(how) if isinstance(how, str) else None
    if kind is None:
        raise invalid(where, f"how={how!r} is none of {', '.join(kinds)}", as_of=as_of)
    if first is None or second is None:
        missing = names[0] if first is None else names[1]
        raise invalid(where, f"{missing} has no withWatermark(), which tells its event time", as_of=as_of)
    within_s = None if within is None else duration_s(within)
    if within_s is not None and within_s > SPAN_S_MAX:
        raise invalid(where, f"{limit}={within!r} is too long", as_of=as_of)
    if as_of:
        _check_key(on, (first, second), where)
    return TimedJoin(
        on=_condition(on, where), how=kind, within_us=None if within_s is None else round(within_s * 1_000_000),
        names=names, watermarks=(first, second), as_of=as_of,
    )  # fmt: skip


def join_of(
    both: tuple[Node, Node], on: object, how: object, within: Duration | None, where: SourceLocation, *,
    as_of: bool = False,
) -> TimedJoin:  # fmt: skip
    """Return the declaration of a join of two recorded streams, whose steps keep the time of their `withWatermark`.

    Raises: DefinitionError: as `timed_join`.
    """
    timed = [joined_by(node) for node in both]
    first, second = (None if step is None else step.arguments[0] for step in timed)
    names = (alias_of(both[0]), alias_of(both[1]))
    for node, step, name in zip(both, timed, names, strict=True):
        _check_former(node, step, name, where, as_of=as_of)
    made = declared_join(on, how, within, names, (first, second), where, as_of=as_of)
    for node, step, name in zip(both, timed, names, strict=True):
        column = "" if step is None else step.arguments[0].column
        if step is not None and column not in unchanged({column}, steps_since(step, node)):
            reason = f"a step after withWatermark() may change or drop column {column} of {name}"
            raise invalid(where, reason, as_of=as_of)
    return made


def _check_former(node: Node, timed: Step | None, name: str, where: SourceLocation, *, as_of: bool) -> None:
    """Check that the results of an earlier join have an event time. Args: node: a side. timed: its `withWatermark`.

    Raises: DefinitionError: `JOIN_INVALID`.
    """
    former = [step for step in steps_of(node) if step.operation == "timedJoin"]
    if timed is not None and any(step.operation == "timedJoin" for step in steps_of(timed)):
        reason = f"withWatermark() of {name} comes after a join, whose results have the time of their left records"
        raise invalid(where, reason, as_of=as_of)
    outer = next((step.arguments[1] for step in former if step.arguments[1].keeps[1]), None)
    if timed is None and outer is not None:
        reason = f"a {outer.how} join of {name} comes before, and its results without a left record have no event time"
        raise invalid(where, reason, as_of=as_of)


def _check_key(on: object, watermarks: tuple[Watermark, Watermark], where: SourceLocation) -> None:
    """Check that a join as of a time has names of a key, and not the time, which `on` has in other libraries.

    Raises: DefinitionError: `JOIN_INVALID`.
    """
    if not are_names(on):
        raise invalid(where, f"on={on!r} is not the names of columns", as_of=True)
    key = key_columns(on)  # type: ignore[arg-type]  # names
    times = {each.column.casefold() for each in watermarks}
    time = next((name for name in key if name.casefold() in times), None)
    if time is not None:
        raise invalid(where, f"column {time} is the event time, and on= names the key", as_of=True)


def invalid(where: SourceLocation, reason: str, *, as_of: bool = False) -> DefinitionError:
    """Return the error `JOIN_INVALID`."""
    return JOIN_INVALID.error(where=where, method=_method(as_of=as_of), reason=reason, example=_EXAMPLES[as_of])


def _method(*, as_of: bool) -> str:
    return "join_asof" if as_of else "join"


def passed(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the names of what has to pass a record by its event time, before the result of the record is computed: the
    tables of as-of joins, and the inputs of `stateful(order=)`."""
    declared = [step.arguments[1] for step in steps if step.operation == "timedJoin"]
    ordered = [root.name for step in steps if is_ordered(step) for root in roots_of(step.parent)]
    return (*(join.names[1] for join in declared if join.as_of), *ordered)


def are_names(on: object) -> bool:
    """Return whether `on` is the name of a column, or several."""
    return isinstance(on, str) or (isinstance(on, Sequence) and bool(on) and all(isinstance(each, str) for each in on))


def _condition(on: Any, where: SourceLocation) -> Any:
    if are_names(on):
        return key_columns(on)
    several = [on] if hasattr(on, "_jc") else list(on) if isinstance(on, list | tuple) else []
    if not several or not all(hasattr(each, "_jc") for each in several):
        raise invalid(where, f"on={on!r} is neither names of columns nor a condition")
    whole = several[0]
    for each in several[1:]:
        whole = whole & each
    return whole
