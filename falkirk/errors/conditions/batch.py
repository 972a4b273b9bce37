"""Conditions of `steps/batch`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

OUTSIDE_OF_BATCH = Condition(
    "OUTSIDE_OF_BATCH",
    DefinitionError,
    "fk.{operator}() was called outside a batch.",
    hint="Call it inside a function under @app.batch(…) or @app.stream(fk.Eager()).",
)
SCHEMA_INVALID_OPTION = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "{option}={schema!r} is not Spark DDL: {problem}.",
    hint='Write columns as "id STRING, n LONG".',
)
SCHEMA_INVALID_KEY = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "returns={schema!r} has the column {column!r}, which include_key=True adds.",
    hint="Leave {column!r} out of returns= and out of the function's results.",
)
OPTION_UNKNOWN_POISON = Condition(
    "OPTION_UNKNOWN",
    DefinitionError,
    "poison={value!r} is unknown.",
    hint="Use dead-letter or fail.",
)
STAMP_MISSING = Condition(
    "STAMP_MISSING",
    DefinitionError,
    "the rows have no column 'stamp', so the order of a key's rows is unknown.",
    hint="Mark the parameter, def f(events: fk.Stamped), and keep its column; or name another with order=.",
)
NON_DETERMINISTIC_PROGRAM = Condition(
    "NON_DETERMINISTIC",
    DefinitionError,
    "iteration {processor!r} gives another program each time its function is called: it reads a clock, a random "
    "number or a counter in Python. After a restart, rows could not be removed again.",
    hint="Write a constant, or send the value with the rows.",
)
COLLECTION_MISSING = Condition(
    "COLLECTION_MISSING",
    DefinitionError,
    "iteration {processor!r} returns {name} instead of a collection.",
    hint="Return a collection: one of its parameters, or one made from them.",
)
UNTIL_UNUSED = Condition(
    "UNTIL_UNUSED",
    DefinitionError,
    "iteration {processor!r} has until={until}, but no sum uses it.",
    hint="It is for floating-point sums in fixpoint(). Remove it; give sums in iterate() a tolerance=….",
)
CUT_INVALID_JOIN = Condition(
    "CUT_INVALID",
    DefinitionError,
    "join(time={time!r}, within={within!r}) needs both options or neither.",
    hint='Write time="at", within="10 minutes".',
)
NOT_A_STREAM_BATCH = Condition(
    "NOT_A_STREAM",
    DefinitionError,
    "processor {processor!r} returned no stream made from what it reads.",
    hint="Return the transformed stream.",
)
STAMP_MISSING_ORDER = Condition(
    "STAMP_MISSING",
    DefinitionError,
    "{operation}() follows a step whose results have no order.",
    hint="Put it first, or into a separate processor.",
)
CUT_INVALID_SESSIONS = Condition(
    "CUT_INVALID",
    DefinitionError,
    "fk.sessions() needs a batch whose epochs end by event time (an epoch is the input of one run).",
    hint='Write @app.batch(every="1 minute", by="{time}").',
)
CUT_INVALID_SIZE = Condition(
    "CUT_INVALID",
    DefinitionError,
    "size={size!r} is not a whole number of at least 1.",
    hint="Give the number of rows in a group, at least 1.",
)
