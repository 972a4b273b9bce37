"""Conditions of `steps/differential`."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

STEP_INVALID = Condition(
    "STEP_INVALID",
    DefinitionError,
    "{operation}() uses more than one row at a time (an aggregate, a window or a subquery).",
    hint="Use groupBy() or join() for this.",
)
STEP_INVALID_STAR = Condition(
    "STEP_INVALID",
    DefinitionError,
    "{operation}() has a * within an expression, which would include Falkirk's own columns.",
    hint="Name the columns: {columns_here}.",
)
NON_DETERMINISTIC = Condition(
    "NON_DETERMINISTIC",
    DefinitionError,
    "{operation}() may give another result each time{named}. A row that it added could then not be removed again.",
    hint="Compute the value before the iteration, which records its input. If a function always gives the same result, "
    "declare it with fk.deterministic.",
)
STEP_INVALID_IN_ITERATION = Condition(
    "STEP_INVALID",
    DefinitionError,
    "{operation}(): {reason}.",
    hint="Columns here: {columns_here}.",
)
TYPE_UNSUITABLE = Condition(
    "TYPE_UNSUITABLE",
    DefinitionError,
    "column {column!r} is {type}, which an iteration can't store.",
    hint="Split it into columns of simple types.",
)
TYPE_UNSUITABLE_COLLATION = Condition(
    "TYPE_UNSUITABLE",
    DefinitionError,
    "column {column!r} is {type}, but an iteration compares texts byte by byte.",
    hint="Select a form that is equal byte by byte, for example lower(…), or cast the column to STRING.",
)
AGGREGATE_INVALID = Condition(
    "AGGREGATE_INVALID",
    DefinitionError,
    "agg(): {kind!r} is not defined for column {column!r} of type {number}.",
    hint="Use count, sum (of whole or floating-point numbers), min or max.",
)
ROUNDS_INVALID = Condition(
    "ROUNDS_INVALID",
    DefinitionError,
    "rounds={rounds} is less than 1.",
    hint="Give the greatest number of rounds, at least 1.",
)
UNTIL_IN_ITERATE = Condition(
    "UNTIL_IN_ITERATE",
    DefinitionError,
    "until={until} applies only in fixpoint(), but the sum {column!r} is in the body of iterate().",
    hint="Give this sum a tolerance=…; 0.0 means that every change counts. Or make the loop a fixpoint(), if it "
    "reaches the same result from every start.",
)
ROWS_INVALID = Condition(
    "ROWS_INVALID",
    DefinitionError,
    "top(): rows={rows!r} is not a whole number of at least 1.",
    hint="Give the greatest number of rows of each key.",
)
KEYS_DIFFER = Condition(
    "KEYS_DIFFER",
    DefinitionError,
    "{operation}(): {column!r} is {here} here and {there} there.",
    hint="Cast one of them.",
)
LOOP_LEFT = Condition(
    "LOOP_LEFT",
    DefinitionError,
    "a collection that was made in the body of a loop is read outside the loop.",
    hint="Return it from the body: iterate() returns the result of the loop.",
)
FUNCTION_UNREADABLE = Condition(
    "FUNCTION_UNREADABLE",
    DefinitionError,
    "a Python function can't be unpickled. So Falkirk can't know whether it is the same at the next start.",
    hint="Pass plain values to it instead of broadcast variables or objects that need other processes.",
)
