"""Conditions of `user_tools/testkit`."""

from falkirk.errors import DefinitionError, SparkError
from falkirk.errors.condition import Condition

APPLICATION_UNSUITABLE = Condition(
    "APPLICATION_UNSUITABLE",
    DefinitionError,
    "the test kit can't run this application: {reason}.",
    hint="Test it with a local broker: `falkirk run --local`.",
)
APPLICATION_UNSUITABLE_PATTERN = Condition(
    "APPLICATION_UNSUITABLE",
    DefinitionError,
    "the test kit has no broker to ask for the topics of source {source!r}, which has a pattern.",
    hint='Name all topics of the test: fk.testing.run(app, topics=["orders-eu", "orders-us"]).',
)
APPLICATION_UNSUITABLE_GROWTH = Condition(
    "APPLICATION_UNSUITABLE",
    DefinitionError,
    "region {region!r} runs live, and would read other topics than before. A real start refuses it "
    "(`APPLICATION_CHANGED`).",
    hint='Leave out engine="live": the topics of a pattern may grow in micro-batches.',
)
APPLICATION_UNSUITABLE_AGGREGATE = Condition(
    "APPLICATION_UNSUITABLE",
    DefinitionError,
    "the test kit can't compute this aggregate record by record: {reason}",
    hint="Test it with a local broker: `falkirk run --local`.",
)
NAME_UNKNOWN = Condition(
    "NAME_UNKNOWN",
    DefinitionError,
    "the application has no {kind} {name!r}.",
    hint="Choose one of: {known}.",
)
SINK_NOT_READ = Condition(
    "SINK_NOT_READ",
    DefinitionError,
    "sink {name!r} is a sink of your own, and this run delivers to it.",
    hint="Read it by your own code.",
)
ROW_INVALID = Condition(
    "ROW_INVALID",
    DefinitionError,
    "{row} is no row of {place}.",
    hint="Write a mapping of columns, a sequence of values, or the bytes of a record.",
)
ROW_INVALID_LENGTH = Condition(
    "ROW_INVALID",
    DefinitionError,
    "{row} does not have a value for each column of {place}.",
    hint="Its columns are {columns}.",
)
ROW_INVALID_FORMAT = Condition(
    "ROW_INVALID",
    DefinitionError,
    "{row} is no record of topic {topic!r}, whose format is {format}.",
    hint="Write the bytes of a record.",
)
ROW_INVALID_AVRO = Condition(
    "ROW_INVALID",
    DefinitionError,
    "a row does not fit the Avro schema of {place}: {reason}",
    hint="Write values of its types, or the bytes of a record.",
)
ROW_INVALID_BYTES = Condition(
    "ROW_INVALID",
    DefinitionError,
    "{row} is no row of {place}: a Parquet file has no lines.",
    hint="Write a mapping of columns, or a sequence of values.",
)
ROW_INVALID_VALUES = Condition(
    "ROW_INVALID",
    DefinitionError,
    "a row can't be written to {place}: {reason}",
    hint="A Parquet file has only values of its types, and a row of a CSV file is one line.",
)
STEP_FAILED = Condition(
    "STEP_FAILED",
    SparkError,
    "{unit} fails: {reason}",
    hint="In a real run, it is tried again a few times, and then stays down.",
)
