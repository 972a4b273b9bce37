"""Conditions of `commands`."""

from falkirk.errors import DefinitionError, GuaranteeError, HomeError, MachineError
from falkirk.errors.condition import Condition

NOT_CHECKABLE = Condition(
    "NOT_CHECKABLE",
    DefinitionError,
    "sink {sink!r} can't be recomputed: {reason}.",
    hint="Use falkirk.check with your own model.",
)
NOT_CHECKABLE_KEY = Condition(
    "NOT_CHECKABLE",
    DefinitionError,
    "groupBy() has an expression as a key.",
    hint="Group by a named column.",
)
NEVER_RAN = Condition(
    "NEVER_RAN",
    HomeError,
    "no application has run in this home yet.",
    hint="Start it with `falkirk run`, or name its home with --home.",
)
POINT_INVALID = Condition(
    "POINT_INVALID",
    DefinitionError,
    "{text!r} names no point to go back to.",
    hint="Write PROCESSOR@POINT, with a point that `falkirk history --unit` shows, or PROCESSOR@start. Known names: "
    "{names}.",
)
POINT_UNKNOWN = Condition(
    "POINT_UNKNOWN",
    DefinitionError,
    "{region!r} can't go back to {point}.",
    hint="Choose one of: {numbers}.",
)
APPLICATION_MISSING_FILE = Condition(
    "APPLICATION_MISSING",
    DefinitionError,
    "run() was called outside a file, and needs one that it can run again after a failure.",
    hint="Call app.start(), or put the application into a file.",
)
REQUEST_UNANSWERED_STOP = Condition(
    "REQUEST_UNANSWERED",
    HomeError,
    "{app!r} has not stopped for {patience_s:.0f} s.",
    hint="Read host.log in its home. You may kill the application at any moment without harm.",
)
FILE_UNKNOWN = Condition(
    "FILE_UNKNOWN",
    DefinitionError,
    "application {app!r} reads no folder as {source!r}.",
    hint="{advice}",
)
CUT_UNKNOWN = Condition(
    "CUT_UNKNOWN",
    DefinitionError,
    "there is no consistent cut {number_shown}: it was never made, or its points were deleted.",
    hint="{advice}",
)
CUT_TOO_OLD = Condition(
    "CUT_TOO_OLD",
    GuaranteeError,
    "no kept consistent cut is as old as {text!r}.",
    hint="{advice}",
)
POINT_INVALID_STATE = Condition(
    "POINT_INVALID",
    DefinitionError,
    "{text!r} names no state to go back to.",
    hint='Write a time ("2026-01-31 12:00:00", "10 minutes ago"), the number of a consistent cut that `falkirk '
    "history` lists, or PROCESSOR@POINT.",
)
ARCHIVE_NOT_MADE = Condition(
    "ARCHIVE_NOT_MADE",
    MachineError,
    "The training of the class archives failed: {reason}",
    hint="Falkirk works without archives, but starts more slowly. Run `falkirk setup` to try again.",
)
