"""Conditions of `testing`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

SINK_INVALID_TARGET = Condition(
    "SINK_INVALID",
    DefinitionError,
    "make returns a sink of Falkirk's, not one of your own.",
)
