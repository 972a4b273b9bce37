"""Conditions of `steps/static_analysis`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

FUNCTION_UNREADABLE_VALUE = Condition(
    "FUNCTION_UNREADABLE",
    DefinitionError,
    "function {function!r} uses {name!r}, of type {kind}. Falkirk can't tell whether it is the same at the next start.",
    hint="Create it inside the function, or use plain values.",
)
KEY_INVALID_EXPRESSION = Condition(
    "KEY_INVALID",
    DefinitionError,
    "it can't be a key: {reason}.",
    hint="Use a column that neither is nor contains a map.",
)
KEY_INVALID_TYPE = Condition(
    "KEY_INVALID",
    DefinitionError,
    "a live step groups by {column!r}, a {type}: equal keys may have different bytes, and Spark can't find a state "
    "by such keys.",
    hint="Group by one spelling: lower(…), or collate(…, 'UTF8_BINARY'); an interval by its text.",
)
TYPE_UNSUITABLE_HOP = Condition(
    "TYPE_UNSUITABLE",
    DefinitionError,
    "a hop is needed here, and it can't carry the type of a column: {reason}.",
    hint="Convert the column to a simpler type first. The keys of a map must be strings.",
)
