"""States: the options of `stateful`, and the event time that some of them need."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from falkirk.declare.nodes import WITHOUT_TIME, Node, clocked_by, steps_of, steps_since, timed_by
from falkirk.declare.policy import Duration, duration_s
from falkirk.declare.watermark import Expiry, ProcessingTime, TimeOrder, Timers, Watermark
from falkirk.declare.windows import unchanged
from falkirk.errors.conditions.declare import WATERMARK_MISSING
from falkirk.errors.conditions.order import ORDER_UNSUITABLE
from falkirk.errors.location import SourceLocation


def watermark_of(node: Node, where: SourceLocation, step: str) -> Watermark:
    """Return the watermark that holds after a node. Raises: DefinitionError: `WATERMARK_MISSING`."""
    timed = timed_by(node)
    if timed is not None:
        return cast(Watermark, timed.arguments[0])
    last = next((step for step in reversed(steps_of(node)) if step.operation in WITHOUT_TIME), None)
    raise WATERMARK_MISSING.error(where=where, step=step, after="" if last is None else f" after {last.operation}()")


def timed_options(
    node: Node, expires: Duration | None, on_timer: Callable[..., Any] | None, where: SourceLocation
) -> dict[str, Any]:
    """Return the options of `stateful` after a node that need an event time or a clock, for the recorded step.

    Raises: DefinitionError: `DURATION_MALFORMED`, `WATERMARK_MISSING`.
    """
    options: dict[str, Any] = {}
    if expires is not None:
        watermark = watermark_of(node, where, "stateful(expires=)")
        options["expiry"] = Expiry(watermark=watermark, after_us=round(duration_s(expires) * 1_000_000))
    if on_timer is not None:
        is_clocked = clocked_by(node) is not None
        by = ProcessingTime() if is_clocked else watermark_of(node, where, "stateful(on_timer=)")
        options["timers"] = Timers(watermark=by, function=on_timer)
    return options


def order_of(node: Node, order: str, others: Mapping[str, Any], where: SourceLocation) -> TimeOrder:
    """Return the order of a `stateful` after a node.

    Args: order: as the user has written it. others: of `timed_options`.
    Raises: DefinitionError: `WATERMARK_MISSING`, `ORDER_UNSUITABLE`.
    """
    watermark = watermark_of(node, where, "stateful(order=)")
    timed, reason = timed_by(node), None
    assert timed is not None, "there is a watermark"
    if order != watermark.column:
        reason = f"withWatermark() is of {watermark.column!r}"
    elif order not in unchanged({order}, steps_since(timed, node)):
        reason = f"a step after withWatermark() may change column {order!r}"
    elif others:
        option = "expires" if "expiry" in others else "on_timer"
        reason = f"{option}= needs all records of a key in one partition, where they have an order without order="
    if reason is not None:
        raise ORDER_UNSUITABLE.error(where=where, order=order, reason=reason)
    return TimeOrder(watermark=watermark)
