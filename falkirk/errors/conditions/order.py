"""Conditions of `stateful(order=)`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

ORDER_UNSUITABLE = Condition(
    "ORDER_UNSUITABLE",
    DefinitionError,
    "stateful(order={order!r}) can't give records by their times: {reason}.",
    hint="Name the column of withWatermark(), keep it unchanged, and leave expires= and on_timer= out.",
)
ORDER_UNSUITABLE_RESULTS = Condition(
    "ORDER_UNSUITABLE",
    DefinitionError,
    "stateful(order=) in {processor!r} can't run live: {reason}.",
    hint="Compute such values in a processor that reads this one, and leave delivery= out. Or write "
    'engine="micro-batch".',
)
