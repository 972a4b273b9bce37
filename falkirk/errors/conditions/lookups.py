"""Conditions of lookups in views."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

LOOKUP_INVALID = Condition(
    "LOOKUP_INVALID",
    DefinitionError,
    "lookup() can't find rows: {reason}.",
    hint='Mark a parameter, def priced(orders, prices: fk.View), and write orders.lookup(prices, "product", "found").',
)
