"""Conditions of `checker`."""

from falkirk.errors import DefinitionError, LogError, MachineError
from falkirk.errors.condition import Condition

MODEL_INVALID = Condition(
    "MODEL_INVALID",
    DefinitionError,
    "{model!r} does not describe a model: {why}.",
    hint="Write aggregates such as count or sum(amount), distinct, stateless, or FILE.py:name.",
)
NO_ROWS = Condition(
    "NO_ROWS",
    LogError,
    "there are no rows at {seen}, so there is nothing to judge.",
    hint="Check the places in --input and --output.",
)
PLACE_TWICE = Condition(
    "PLACE_TWICE",
    DefinitionError,
    "two tables have the same name, {log}, so their rows can't be distinguished.",
    hint="Judge them one by one.",
)
COLUMN_MISSING_ROWS = Condition(
    "COLUMN_MISSING",
    DefinitionError,
    "no row of {side} has {columns:listed}.",
    hint="Check the names in --key and --model, and the columns in --ignore.",
)
PLACE_TWICE_LOG = Condition(
    "PLACE_TWICE",
    DefinitionError,
    "{place} and {named} have the same rows: {log}.",
    hint="Name each place once, as an input or as an output.",
)
ROWS_UNREAD = Condition(
    "ROWS_UNREAD",
    LogError,
    "{count} entries of this folder can't be read and may hold rows: {names}.",
    hint="Exclude entries without rows with --skip PATTERN, or name the files one by one.",
)
NO_ORDER = Condition(
    "NO_ORDER",
    DefinitionError,
    "{name}({column}) can't compare {one!r} and {other!r}, which have no order.",
    hint="For `falkirk verify run`, set the column's type, for example --type {column}=decimal.",
)
SUM_OF_NO_NUMBER = Condition(
    "SUM_OF_NO_NUMBER",
    DefinitionError,
    "sum({column}) can't add {value!r}{added_to}: {cause}",
    hint="Give the checker only rows that reach the `groupBy`; for `falkirk verify run`, set its type: --type "
    "{column}=decimal.",
)
PLACE_INVALID = Condition(
    "PLACE_INVALID",
    DefinitionError,
    "topic {topic} has no broker.",
    hint="Add --kafka.",
)
PLACE_INVALID_TABLE = Condition(
    "PLACE_INVALID",
    DefinitionError,
    "a database's URL needs a table.",
    hint="Write URL#TABLE.",
)
ROWS_UNREADABLE = Condition(
    "ROWS_UNREADABLE",
    LogError,
    "{name} could not be read: {cause}",
)
ROWS_UNREADABLE_TABLE = Condition(
    "ROWS_UNREADABLE",
    LogError,
    "table {rest} could not be read: {cause}",
)
RULE_INVALID = Condition(
    "RULE_INVALID",
    DefinitionError,
    "{rule!r} does not describe transitions.",
    hint="Write them as state:new>paid,paid>sent, and possible first values as >new.",
)
INPUT_PLACE_TWICE = Condition(
    "INPUT_PLACE_TWICE",
    DefinitionError,
    "two inputs of key {key!r} have the same place",
    hint="Give each row of one record its own sub-index.",
)
SECRET_IN_ARGUMENT = Condition(
    "SECRET_IN_ARGUMENT",
    DefinitionError,
    "{what} contains a secret, and other users of this machine can read the arguments of a process.",
    hint="{advice}",
)
SECRET_MISSING_OPTION = Condition(
    "SECRET_MISSING",
    DefinitionError,
    "--client {option}={value} has no value: {why}.",
    hint="Set the value before the start.",
)
FOLDER_UNUSABLE = Condition(
    "FOLDER_UNUSABLE",
    MachineError,
    "the rows of the run could not be written: {cause}.",
    hint="Name a folder with enough space with --folder.",
)
TOPIC_MISSING_CHECK = Condition(
    "TOPIC_MISSING",
    LogError,
    "topic {topic} does not exist",
    hint="Check its name and the broker's address.",
)
TOPIC_UNREADABLE = Condition(
    "TOPIC_UNREADABLE",
    LogError,
    "topic {topic} could not be read: {cause}",
    hint="Check that the broker is running, its address and credentials, and the rights of the user.",
)
TOPIC_UNREADABLE_SILENT = Condition(
    "TOPIC_UNREADABLE",
    LogError,
    "{topic} delivered nothing for {silence_s:g} s, and partitions {unread} have more records",
    hint="Check that the broker is running.",
)
TYPE_INVALID = Condition(
    "TYPE_INVALID",
    DefinitionError,
    "column {column} has the unknown type {type!r}.",
    hint="Choose one of {types}.",
)
TOPIC_UNSEEN = Condition(
    "TOPIC_UNSEEN",
    LogError,
    "topic {topic} can't be read as a whole: {why}{marked}.",
    hint="{advice}",
)
ROWS_CHANGED = Condition(
    "ROWS_CHANGED",
    LogError,
    "{changed} while the checker was reading.",
    hint="Run the checker when no record is in flight. If a first offset has moved, the topic's retention has deleted "
    "records: increase it.",
)
