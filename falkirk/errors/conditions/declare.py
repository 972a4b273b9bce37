"""Conditions of `declare`."""

from falkirk.errors import DefinitionError, MachineError
from falkirk.errors.condition import Condition

ADDRESS_INVALID = Condition(
    "ADDRESS_INVALID",
    DefinitionError,
    "http={address!r} is not an address of the form host:port.",
    hint='Write "127.0.0.1:8088", or port 0 for any free port.',
)
ADDRESS_INVALID_METRICS = Condition(
    "ADDRESS_INVALID",
    DefinitionError,
    "metrics can't be served at {address!r}: it does not have the form [host:]port.",
    hint='Write a port, as in "9100", or an address, as in "0.0.0.0:9100".',
)
ADDRESS_INVALID_DASHBOARD = Condition(
    "ADDRESS_INVALID",
    DefinitionError,
    "the dashboard can't be served at {address!r}: it does not have the form [host:]port.",
    hint='Write a port, as in "8350", or an address, as in "0.0.0.0:8350".',
)
ANNOTATION_UNKNOWN = Condition(
    "ANNOTATION_UNKNOWN",
    DefinitionError,
    "parameter {parameter!r} of {body!r} has the annotation {annotation}, which Falkirk does not understand.",
    hint="Write Annotated[DataFrame, fk.View] for the newest epoch, Annotated[DataFrame, fk.Stamped] for rows with "
    "stamps, or an annotation without other names of Falkirk.",
)
MARK_MISPLACED = Condition(
    "MARK_MISPLACED",
    DefinitionError,
    "parameter {parameter!r} of {body!r} is marked fk.{mark}, but a function under @app.stream() gets streams, "
    "which can only be marked fk.View.",
    hint="Remove the mark, or write @app.stream(fk.Eager()) or @app.batch(…): their parameters are DataFrames.",
)
UPSTREAM_UNNAMED = Condition(
    "UPSTREAM_UNNAMED",
    DefinitionError,
    "sink {sink!r} reads {name}, which is not a source or processor of this application.",
    hint="Put the transformations into a function under @app.stream(), and pass that function.",
)
POLICY_UNKNOWN = Condition(
    "POLICY_UNKNOWN",
    DefinitionError,
    "{policy!r} is not a policy.",
    hint='Write @app.stream(fk.Lazy("10 seconds")) or @app.stream(fk.Ephemeral()).',
)
ITERATION_INVALID = Condition(
    "ITERATION_INVALID",
    DefinitionError,
    "rounds={rounds!r}, until={until!r}, sends={sends!r} does not describe an iteration.",
    hint='Write @app.iterate(every="10 seconds", rounds=50); set sends= to "changes" or "all".',
)
UPSTREAM_MISSING = Condition(
    "UPSTREAM_MISSING",
    DefinitionError,
    "processor {processor!r} has no input.",
    hint="Name a source or a processor as a parameter of its function.",
)
NAME_TAKEN = Condition(
    "NAME_TAKEN",
    DefinitionError,
    "a sink named {name!r} already exists.",
    hint="Give each sink a different name.",
)
NAME_TAKEN_KIND = Condition(
    "NAME_TAKEN",
    DefinitionError,
    "a {kind} named {name!r} already exists.",
    hint="Give each source and processor a different name.",
)
STATE_UNDECLARED = Condition(
    "STATE_UNDECLARED",
    DefinitionError,
    "batch {processor!r} {lack} state.",
    hint='Write @app.batch(…, state="id STRING, n LONG") and def {processor}(…, {processor}).',
)
ITERATION_INVALID_VIEW = Condition(
    "ITERATION_INVALID",
    DefinitionError,
    "iteration {name!r} reads the newest epoch of {views}. An iteration reads changes, and would add all rows of "
    "that epoch again in each of its epochs.",
    hint="Let it read changes: rows with a column `difference`, such as another iteration sends.",
)
UPSTREAM_MISSING_EPOCHS = Condition(
    "UPSTREAM_MISSING",
    DefinitionError,
    "{processor!r} has no input besides views.",
    hint="Name a source or a processor as a parameter that is not marked fk.View.",
)
NOT_A_FUNCTION = Condition(
    "NOT_A_FUNCTION",
    DefinitionError,
    "fk.deterministic() needs a function, not {name}.",
    hint="Write @fk.deterministic above the function.",
)
POLICY_MISPLACED = Condition(
    "POLICY_MISPLACED",
    DefinitionError,
    "{policy!r} is not a policy for {what}.",
    hint="Use {advice}.",
)
CUT_INVALID = Condition(
    "CUT_INVALID",
    DefinitionError,
    "every={every!r} and rows={rows!r} do not define when an epoch is complete (an epoch is the input of one run of "
    "the function).",
    hint='Write @app.{what}(every="1 minute") or @app.{what}(rows=10_000).',
)
CUT_INVALID_SPAN = Condition(
    "CUT_INVALID",
    DefinitionError,
    "one of every={every!r}, late={late!r}, over={over!r} and ahead={ahead!r} is longer than 500 years.",
    hint='Write a shorter duration, such as ahead="24 hours".',
)
CUT_INVALID_TIME = Condition(
    "CUT_INVALID",
    DefinitionError,
    "every={every!r}, by={by!r} and over={over!r} do not define when an epoch is complete (an epoch is the input of "
    "one run of the function).",
    hint='Write @app.batch(every="1 minute", by="at", late="10 seconds"), with over= a multiple of every=.',
)
NAME_INVALID = Condition(
    "NAME_INVALID",
    DefinitionError,
    "{name!r} is not a valid name for {what}.",
    hint="Use letters, digits, '-' and '_', at most 64.",
)
OPTION_UNKNOWN = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "history={value!r} is not a duration of at most {days_max:,} days.",
    hint='Write a number of checkpoints, such as 10, or a duration, such as "2 days".',
)
OPTION_UNKNOWN_TRANSACTIONAL = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "transactional={value!r} is neither True nor False.",
    hint="Leave it out: then sinks are transactional on a cluster, and not on one machine.",
)
OPTION_UNKNOWN_ENGINE = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "engine={value!r} is not known.",
    hint="Use live or micro-batch, or omit engine=.",
)
OPTION_UNKNOWN_COUNT = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "{option}={value!r} is not a whole number of at least {least}{limit}.",
    hint="Each state partition takes a core slot in every keyed region; each checkpoint takes disk.",
)
DELIVERY_UNKNOWN = Condition(
    "DELIVERY_UNKNOWN",
    DefinitionError,
    "delivery={value!r} is not known.",
    hint="Use one of {known}.",
)
SCHEMA_MISSING = Condition(
    "SCHEMA_MISSING",
    DefinitionError,
    "topic {topic!r} has Avro records but no schema.",
    hint='Write fk.Kafka("…", format="avro", schema="orders.avsc"), or give the schema as JSON.',
)
NOT_AN_ENDPOINT = Condition(
    "NOT_AN_ENDPOINT",
    DefinitionError,
    "results can't be written to {shown}.",
    hint='Write fk.Kafka("topic"), fk.Sql("postgresql://…", "table"), fk.Files("folder"), fk.Delta("folder"), '
    'fk.Iceberg("namespace.table"), fk.EpochTopic("topic"), fk.Console(), or an object with address, delivered() and '
    "deliver(epoch, rows) (fk.Sink).",
)
SCHEMA_MISSING_FILES = Condition(
    "SCHEMA_MISSING",
    DefinitionError,
    "the source of files in {path!r} has no schema.",
    hint='Write fk.Files("folder", format="json", schema="id STRING, n INT").',
)
NOT_A_TOPIC = Condition(
    "NOT_A_TOPIC",
    DefinitionError,
    "{value!r} is not a topic.",
    hint='Write fk.Kafka("name", schema="id STRING, n INT").',
)
KEY_INVALID = Condition(
    "KEY_INVALID",
    DefinitionError,
    "key={key!r} does not name columns.",
    hint='Write key="id" or key=["country", "id"], or omit key=.',
)
TOPIC_NAME_INVALID = Condition(
    "TOPIC_NAME_INVALID",
    DefinitionError,
    "{topic!r} is not a topic name.",
    hint="Use at most 249 letters, digits, '.', '_' and '-'.",
)
TOPICS_INVALID = Condition(
    "TOPICS_INVALID",
    DefinitionError,
    "{topics!r} is not a list of different topics.",
    hint='Name each topic once: fk.Kafka(["orders-eu", "orders-us"], schema="id STRING, n INT").',
)
TOPICS_MISPLACED = Condition(
    "TOPICS_MISPLACED",
    DefinitionError,
    "the topics {topics!r} can be read as one only by app.source().",
    hint='Write app.source("orders", fk.Kafka(["orders-eu", "orders-us"], …)), or name one topic here.',
)
SCHEMA_INVALID = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "the schema of topic {topic!r} is not an Avro schema of a record: {reason}.",
    hint="Give the schema as JSON, or the name of a file with it.",
)
TABLE_NAME_INVALID = Condition(
    "TABLE_NAME_INVALID",
    DefinitionError,
    "{table!r} is not a valid table name.",
    hint="Use at most 63 letters, digits and '_', and do not start with a digit.",
)
DATABASE_UNKNOWN = Condition(
    "DATABASE_UNKNOWN",
    DefinitionError,
    "Falkirk does not support the database in the URL of table {table!r}.",
    hint="Use a URL that starts with sqlite:/// or postgresql://.",
)
OPTION_UNKNOWN_FORMAT = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "format={value!r} is not known.",
    hint="Use one of parquet, json, csv.",
)
OPTION_UNKNOWN_ROWS = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "{option}={value!r} is not a whole number of at least 1.",
)
OPTION_UNKNOWN_CHOICE = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "{option}={value!r} is not known.",
    hint="Use one of {known}.",
)
OPTION_UNKNOWN_METADATA = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "metadata={value!r} does not name parts of a record.",
    hint='Use some of {known}: metadata=["key", "timestamp"], or metadata={{"key": "record_key"}} to name the column.',
)
OPTION_UNKNOWN_METADATA_OF_SINK = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "metadata= has no effect on a sink, and topic {topic!r} is one.",
    hint="Remove it. The column(s) of key= become the key of a sink's record.",
)
PATH_INVALID = Condition(
    "PATH_INVALID",
    DefinitionError,
    "{path!r} is not a path to which requests can be posted.",
    hint='Write fk.Http("/queries", …). Use letters, digits, "-" and "_" between slashes.',
)
OPTION_UNKNOWN_SHORT = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "timeout={timeout!r}, window={window!r} is too short.",
    hint="Set timeout= to more than 0 seconds, and window= to at least {window_least_s:g} seconds.",
)
NAME_TAKEN_PATH = Condition(
    "NAME_TAKEN",
    DefinitionError,
    "another source already has the path {name!r}.",
    hint="Give each source of requests a different path.",
)
FILE_MISSING = Condition(
    "FILE_MISSING",
    DefinitionError,
    "there is no file {file}.",
    hint="Name the file that declares the App.",
)
APPLICATION_MISSING = Condition(
    "APPLICATION_MISSING",
    DefinitionError,
    "the file declares no application.",
    hint='Declare one at top level: app = fk.App("name").',
)
APPLICATIONS_SEVERAL = Condition(
    "APPLICATIONS_SEVERAL",
    DefinitionError,
    "the file declares {count} applications: {apps}.",
    hint="Declare one App per file.",
)
BROKER_MISSING = Condition(
    "BROKER_MISSING",
    DefinitionError,
    "application {app!r} names no broker.",
    hint='Pass fk.App(…, kafka="host:port"), or --kafka host:port. For a trial, pass --local. After `falkirk run '
    "--local`, the other commands need --local too.",
)
DURATION_MALFORMED = Condition(
    "DURATION_MALFORMED",
    DefinitionError,
    "{text!r} is not a duration.",
    hint='Write a positive number and a unit, such as "30 seconds".',
)
INTERVAL_TOO_SHORT = Condition(
    "INTERVAL_TOO_SHORT",
    DefinitionError,
    "a checkpoint every {interval} leaves no time for work between checkpoints.",
    hint="Use at least 1 second; 5 seconds or more is usual.",
)
SINK_INVALID = Condition(
    "SINK_INVALID",
    DefinitionError,
    "{kind} is not a sink: {reason}.",
    hint="Give it an address, and the methods delivered() and deliver(epoch, rows), as fk.Sink describes.",
)
SCHEMA_MISSING_JSON = Condition(
    "SCHEMA_MISSING",
    DefinitionError,
    "source {source!r} reads JSON but has no schema.",
    hint='Give its columns: fk.Kafka("…", schema="id STRING, n INT").',
)
NOT_A_STREAM = Condition(
    "NOT_A_STREAM",
    DefinitionError,
    "{operation}() needs a stream, not {name}.",
    hint="Name both streams as parameters of the processor.",
)
KEY_MISSING = Condition(
    "KEY_MISSING",
    DefinitionError,
    "groupBy() needs a key.",
    hint="Name the column(s) to group by.",
)
KEY_MISSING_DUPLICATES = Condition(
    "KEY_MISSING",
    DefinitionError,
    "dropDuplicates({subset!r}) needs a list of columns.",
    hint='Write dropDuplicates(["id"]).',
)
WATERMARK_INVALID = Condition(
    "WATERMARK_INVALID",
    DefinitionError,
    "withWatermark({column!r}, {delay!r}, ahead={ahead!r}, idle={idle!r}) needs the name of a column, and durations of "
    "at most 500 years.",
    hint='Write withWatermark("at", "10 seconds").',
)
WATERMARK_MISSING = Condition(
    "WATERMARK_MISSING",
    DefinitionError,
    "{step} has no event time{after}, so Falkirk can't know which earlier records may still come.",
    hint='Write withWatermark("at", "10 seconds") before it, in the same processor.',
)
JOIN_INVALID = Condition(
    "JOIN_INVALID",
    DefinitionError,
    "{method}() can't pair these streams: {reason}.",
    hint='Write left.withWatermark("at", "10 seconds") and the same for the right stream, then {example}.',
)
WINDOW_INVALID = Condition(
    "WINDOW_INVALID",
    DefinitionError,
    "the window {window!r} can't have an event time: {reason}.",
    hint="Group by one window of the column of withWatermark(), with constant intervals: "
    'groupBy(F.window("at", "10 minutes"), "id").',
)
OUTPUT_MODE_INVALID = Condition(
    "OUTPUT_MODE_INVALID",
    DefinitionError,
    "outputMode({mode!r}) can't be used here.",
    hint='Windows after withWatermark() have "append" (one result when a window closes) and "update" (a result for '
    'each record); other groups have "update" alone.',
)
AGGREGATE_MISSING = Condition(
    "AGGREGATE_MISSING",
    DefinitionError,
    "agg() needs an aggregate.",
    hint='Write agg(F.count("*")).',
)
AGGREGATE_MISSING_COLUMN = Condition(
    "AGGREGATE_MISSING",
    DefinitionError,
    "{function}() needs the names of columns, not {column!r}.",
    hint='Name them: {function}("price"). For expressions, use agg().',
)
CERTIFICATE_UNSUITABLE = Condition(
    "CERTIFICATE_UNSUITABLE",
    MachineError,
    "{certificate} and {key} are not a certificate and its key: {reason}.",
    hint="Name two PEM files. The key must belong to the certificate and have no password.",
)
FILE_UNREADABLE = Condition(
    "FILE_UNREADABLE",
    MachineError,
    "{path} cannot be read: {reason}.",
    hint="Check the path and the permissions.",
)
