"""Conditions of `user_tools/commands`."""

from falkirk.errors import DefinitionError, GuaranteeError, HomeError, LogError, MachineError
from falkirk.errors.condition import Condition

NOT_CHECKABLE = Condition(
    "NOT_CHECKABLE",
    DefinitionError,
    "sink {sink!r} can't be recomputed: {reason}.",
    hint="Use falkirk.checker with your own model.",
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
CHECKPOINT_INVALID = Condition(
    "CHECKPOINT_INVALID",
    DefinitionError,
    "{text!r} names no checkpoint for a rollback.",
    hint="Write PROCESSOR@CHECKPOINT, with a checkpoint that `falkirk history --unit` shows, or PROCESSOR@start. "
    "Known names: {names}.",
)
CHECKPOINT_UNKNOWN = Condition(
    "CHECKPOINT_UNKNOWN",
    DefinitionError,
    "{region!r} can't roll back to checkpoint {checkpoint}.",
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
    "{app!r} did not stop within {patience_s:.0f} s.",
    hint="Read host.log in its home. You may kill the application at any moment without harm.",
)
FILE_UNKNOWN = Condition(
    "FILE_UNKNOWN",
    DefinitionError,
    "application {app!r} reads no folder as {source!r}.",
    hint="{advice}",
)
ROLLBACK_NEEDS_COMMAND = Condition(
    "ROLLBACK_NEEDS_COMMAND",
    HomeError,
    "the page can't roll the application back: {reason}.",
    hint="Wait for the other rollback. If the application does not run, use `falkirk rollback` with --to {cut}.",
)
PREVIEW_OUTDATED = Condition(
    "PREVIEW_OUTDATED",
    HomeError,
    "a rollback to cut {cut} is not what the page showed: {reason}.",
    hint="Read the new preview, and confirm again.",
)
PREVIEW_OUTDATED_COMMAND = Condition(
    "PREVIEW_OUTDATED",
    HomeError,
    "the application has restored checkpoints since the preview: {names} would not return to the states shown.",
    hint="Run the command again, and read the new preview.",
)
CUT_UNKNOWN = Condition(
    "CUT_UNKNOWN",
    DefinitionError,
    "there is no consistent cut {number_shown}: it was never made, or its checkpoints were deleted.",
    hint="{advice}",
)
CUT_TOO_OLD = Condition(
    "CUT_TOO_OLD",
    GuaranteeError,
    "no kept consistent cut is as old as {text!r}.",
    hint="{advice}",
)
CHECKPOINT_INVALID_STATE = Condition(
    "CHECKPOINT_INVALID",
    DefinitionError,
    "{text!r} names no consistent cut and no checkpoint.",
    hint='Write a time ("2026-01-31 12:00:00", "10 minutes ago"), the number of a cut that `falkirk '
    "history` lists, or PROCESSOR@CHECKPOINT.",
)
ARCHIVE_NOT_MADE = Condition(
    "ARCHIVE_NOT_MADE",
    MachineError,
    "The training of the class archives failed: {reason}",
    hint="Falkirk works without archives, but starts more slowly. Run `falkirk setup` to try again.",
)
PROJECT_EXISTS = Condition(
    "PROJECT_EXISTS",
    DefinitionError,
    "{folder} exists, and `falkirk init` overwrites nothing.",
    hint="Choose another name, or remove it.",
)
PROJECT_NAME_INVALID = Condition(
    "PROJECT_NAME_INVALID",
    DefinitionError,
    "{name!r} can't be the name of a project: {reason}.",
    hint="Choose another name.",
)
RECORD_NAME_INVALID = Condition(
    "RECORD_NAME_INVALID",
    DefinitionError,
    "{text!r} names no record.",
    hint="Write TOPIC/PARTITION@OFFSET, such as sales/0@17, or BATCH@EPOCH.",
)
RECORD_DELETED = Condition(
    "RECORD_DELETED",
    LogError,
    "the record {record} was deleted: partition {partition} now begins at {begin}.",
    hint="Choose a later record. To keep records longer, increase the topic's retention.",
)
RECORD_MISSING = Condition(
    "RECORD_MISSING",
    LogError,
    "there is no record {record}: {reason}.",
    hint="Choose another offset. `falkirk peek` shows the last ones.",
)
RECORD_FOREIGN = Condition(
    "RECORD_FOREIGN",
    LogError,
    "this application did not write the record {record}: it has {reason}.",
    hint="Choose a record of this application. `falkirk peek` marks the others as foreign.",
)
EPOCH_UNKNOWN = Condition(
    "EPOCH_UNKNOWN",
    LogError,
    "it is not known which epoch has written the record {record}: {reason}.",
    hint="Ask again when its epoch is complete, or choose another record: `falkirk peek` marks those without an epoch.",
)
TOPIC_NOT_OURS = Condition(
    "TOPIC_NOT_OURS",
    DefinitionError,
    "application {app!r} does not write {topic!r}.",
    hint="It writes {names}.",
)
TOPIC_NOT_OURS_PEEK = Condition(
    "TOPIC_NOT_OURS",
    DefinitionError,
    "application {app!r} neither reads nor writes {topic!r}.",
    hint="It uses {names}.",
)
LOG_MISSING = Condition(
    "LOG_MISSING",
    HomeError,
    "the home has no log.",
    hint="`falkirk run` writes it. An application in another process (`app.start()`, spark-submit) logs there.",
)
STATE_MISSING = Condition(
    "STATE_MISSING",
    HomeError,
    "{unit!r} has no saved state: {reason}.",
    hint="`falkirk plan` shows which steps have a state, and `falkirk history --unit` when it was saved.",
)
STATE_UNREADABLE = Condition(
    "STATE_UNREADABLE",
    DefinitionError,
    "the state of {unit!r} can't be shown: it is that of {step}.",
    hint="Read the results in the topic.",
)
STATE_UNREADABLE_CHANGED = Condition(
    "STATE_UNREADABLE",
    DefinitionError,
    "the state of {unit!r} can't be shown: its steps in this file are not those that the application has run.",
    hint="Give the file with which the application runs.",
)
BATCH_UNKNOWN = Condition(
    "BATCH_UNKNOWN",
    DefinitionError,
    "the application has no batch {batch!r}.",
    hint="Its batches are {names}.",
)
EPOCH_MISSING = Condition(
    "EPOCH_MISSING",
    DefinitionError,
    "batch {batch!r} has no epoch {epoch} yet: the next one is {following}.",
    hint="Choose an earlier one.",
)
RECOVERIES_MEANWHILE = Condition(
    "RECOVERIES_MEANWHILE",
    HomeError,
    "the application has restored a checkpoint {tries} times while the command read its checkpoints.",
    hint="Run `falkirk status` to see why it fails so often, and try again when it runs.",
)
STATE_UNREADABLE_DELETED = Condition(
    "STATE_UNREADABLE",
    DefinitionError,
    "the state of {unit!r} can't be shown: {tries} times it was replaced while the command read it.",
    hint="Try again, or stop the application first.",
)
