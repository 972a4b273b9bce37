"""Conditions of lookups in views, and in the newest rows of streams."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

LOOKUP_INVALID = Condition(
    "LOOKUP_INVALID",
    DefinitionError,
    "lookup() can't find rows: {reason}.",
    hint="For a batch, mark a parameter, def priced(orders, prices: fk.View), and write orders.lookup(prices, "
    '"product", "found"). For a stream, write orders.lookup(fk.Newest(prices), "product", "found").',
)
