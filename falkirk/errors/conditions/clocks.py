"""Conditions of timers by the clock."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

CLOCK_UNSUITABLE = Condition(
    "CLOCK_UNSUITABLE",
    DefinitionError,
    "withClock() of {processor!r} can't make timers fire: {reason}.",
    hint='Declare app.source("clock", fk.Clock("1 second")), and write orders.withClock(clock).stateful(…, on_timer=…) '
    "in a processor that reads one source and the clock. Or use timers by event time, with withWatermark().",
)
