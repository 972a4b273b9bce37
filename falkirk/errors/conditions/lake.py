"""Conditions of tables of Delta Lake and Apache Iceberg."""

from falkirk.errors import DefinitionError, HomeError
from falkirk.errors.condition import Condition

TABLE_NAME_INVALID_ICEBERG = Condition(
    "TABLE_NAME_INVALID",
    DefinitionError,
    "{table!r} is not the name of an Iceberg table with its namespace.",
    hint='Write fk.Iceberg("namespace.table"), with letters, digits, `_` and `-`.',
)
TABLE_PATH_INVALID = Condition(
    "TABLE_PATH_INVALID",
    DefinitionError,
    "{path!r} is not a folder in which Falkirk can write a Delta table.",
    hint="Give the path of a folder on a file system that all machines share. Object stores are not supported.",
)
CATALOG_INVALID = Condition(
    "CATALOG_INVALID",
    DefinitionError,
    "{option}= of fk.Iceberg does not name a catalog.",
    hint='Write catalog="name", and properties={{"uri": "…"}} with texts.',
)
KEY_INVALID_PARTITION = Condition(
    "KEY_INVALID",
    DefinitionError,
    "partition_by={columns!r} does not name columns.",
    hint='Write partition_by="day" or partition_by=["country", "day"], or omit it.',
)
PACKAGE_MISSING = Condition(
    "PACKAGE_MISSING",
    DefinitionError,
    "sink {sink!r} writes {address}, and the package {package} is not installed.",
    hint="Run `pip install 'falkirk[lake]'`.",
)
COLUMN_UNFIT = Condition(
    "COLUMN_UNFIT",
    DefinitionError,
    "sink {sink!r} can't write column {column!r} to {address}: {reason}.",
    hint="Rename the column, cast it to another type or drop it.",
)
TABLE_OF_ANOTHER = Condition(
    "TABLE_OF_ANOTHER",
    HomeError,
    "another home writes {table}.",
    hint="Give each application its own table.",
)
TABLE_UNFIT = Condition(
    "TABLE_UNFIT",
    HomeError,
    "{table} does not take the results: {reason}.",
    hint="Change the table, or give the sink a new one.",
)
