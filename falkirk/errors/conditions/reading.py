"""Conditions of `reading`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

BROKER_MISSING_WRITE = Condition(
    "BROKER_MISSING",
    DefinitionError,
    "write() needs a broker.",
    hint='Pass kafka="host:port".',
)
