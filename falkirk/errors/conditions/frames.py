"""Conditions of `frames`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

SCHEMA_MISMATCH = Condition(
    "SCHEMA_MISMATCH",
    DefinitionError,
    "what sink {sink!r} is to write does not fit the schema of topic {to!r}: {reason}.",
    hint='Select the columns of the schema with its types; what may be null is ["null", …] there.',
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
    hint="Give each a name of its own with alias(); upper and lower case count as the same.",
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
SCHEMA_INVALID_TOPIC = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "the schema of {of} is not Spark DDL: {reason}.",
    hint='Write columns as "id STRING NOT NULL, n INT".',
)
