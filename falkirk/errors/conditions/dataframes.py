"""Conditions of `steps/dataframes`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

SCHEMA_MISMATCH = Condition(
    "SCHEMA_MISMATCH",
    DefinitionError,
    "the results for sink {sink!r} do not fit the schema of topic {to!r}: {reason}.",
    hint='Select the columns of the schema with its types. A column that may be null has the type ["null", …] there.',
)
SCHEMA_INVALID_AVRO = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "the schema of topic {to!r} is no Avro schema of a record: {reason}.",
)
COLUMN_TWICE = Condition(
    "COLUMN_TWICE",
    DefinitionError,
    "there are two columns named {column!r}.",
    hint="Give each a different name with alias(); upper and lower case count as the same.",
)
COLUMN_TWICE_METADATA = Condition(
    "COLUMN_TWICE",
    DefinitionError,
    "the schema of topic {topic!r} has a column {column!r}, and metadata= adds the record's {part} as {name!r}.",
    hint='Name the second one: metadata={{"{part}": "record_{part}"}}. Upper and lower case count as the same.',
)
STEP_INVALID_SPARK = Condition(
    "STEP_INVALID",
    DefinitionError,
    "{operation}(): {reason}",
)
COLUMN_MISSING = Condition(
    "COLUMN_MISSING",
    DefinitionError,
    "{operation}(): there is no column {missing}.",
    hint="Columns here: {columns:listed}.",
)
UNION_INVALID_COLUMNS = Condition(
    "UNION_INVALID",
    DefinitionError,
    "{operation}() needs streams with the same columns: the left one has ({left}), the right one ({right}).",
    hint="select() the same columns on both sides, and cast() those of another type.",
)
STEP_INVALID_REASON = Condition(
    "STEP_INVALID",
    DefinitionError,
    "{operation}(): {reason}.",
)
COLUMN_RESERVED = Condition(
    "COLUMN_RESERVED",
    DefinitionError,
    "{operation}(): {reason}.",
    hint="Names that begin with __falkirk are Falkirk's own. Name columns in place of a '*' in an expression.",
)
COLUMN_RESERVED_NAME = Condition(
    "COLUMN_RESERVED",
    DefinitionError,
    "a column is named {column!r}.",
    hint="Names that begin with __falkirk are Falkirk's own.",
)
JOIN_INVALID_KEY = Condition(
    "JOIN_INVALID",
    DefinitionError,
    "{method}() can't pair these streams: {reason}.",
    hint="Compare a column of one stream with one of the other by = in the condition. It decides where the state of a "
    "record is kept.",
)
JOIN_UNBOUNDED = Condition(
    "JOIN_UNBOUNDED",
    DefinitionError,
    "join() would keep records of {stream} for ever: nothing limits how much later a record of {other} can be.",
    hint='Compare the columns of withWatermark(): "right.at BETWEEN left.at AND left.at + INTERVAL 10 MINUTES". Or add '
    'within="10 minutes", which limits how far the times of a pair are apart.',
)
SCHEMA_INVALID_TOPIC = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "the schema of {of} is not Spark DDL: {reason}.",
    hint='Write columns as "id STRING NOT NULL, n INT".',
)
