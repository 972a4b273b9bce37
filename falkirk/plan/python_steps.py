"""Python steps in live regions: decides whether `map_rows` and `stateful` run live, and what a replay may change.

A Python function counts as non-deterministic unless the user declares it with `fk.deterministic`. Its live results wait
for a checkpoint, which takes longer than a micro-batch. So without the declaration it runs live only where the user
asks for that, or where micro-batches are impossible.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from falkirk.declare.asserting import Word, word_of
from falkirk.declare.nodes import Node, Step, functions_of, steps_of
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Acknowledged, Snapshots
from falkirk.errors.conditions.operators import OPTION_UNKNOWN_POISON
from falkirk.frames.python_steps import keys_of, schema_of
from falkirk.plan.event_time import JOIN
from falkirk.plan.fingerprint import function_text

#: The steps that call a function of rows, and Catalyst's name of an operation that only Python can inspect.
STEPS, CALL = ("map_rows", "stateful"), "PythonUDF"


def against_live(processor: DeclaredProcessor, steps: Sequence[Step], *, elsewhere: bool) -> str | None:
    """Return why a processor's Python function can't run live, or None.

    Args: steps: upstream first. elsewhere: the tasks run on other machines.
    """
    step = next((step for step in steps if step.operation in STEPS), None)
    if step is None:
        return None
    reason, operations = None, {each.operation for each in steps}
    if elsewhere:
        reason = "and live regions call it on the driver's machine only"
    elif JOIN in operations:
        reason = "and does not run live in a processor with a join()"
    elif not _is_declared(processor, steps) and not _must_be_live(processor, operations):
        undeclared = next(function for each in steps for function in _undeclared(each))
        reason = f"and {name_of(undeclared)}() is not declared with fk.deterministic, so live results would wait"
    return None if reason is None else f"{step.operation}() calls Python, {reason} ({step.where})"


def _is_declared(processor: DeclaredProcessor, steps: Sequence[Step]) -> bool:
    return processor.word is not None or not any(_undeclared(step) for step in steps)


def _undeclared(step: Step) -> list[Any]:
    """Return the functions of a step that the user does not declare."""
    return [function for function in functions_of(step) if word_of(function) is None]


def _must_be_live(processor: DeclaredProcessor, operations: set[str]) -> bool:
    """Return whether the processor can't run in micro-batches, or is asked not to."""
    is_live = processor.engine == "live" or isinstance(processor.policy, Snapshots | Acknowledged)
    return is_live or bool(operations & {"agg", "count"})


def name_of(function: Any) -> str:
    """Return the name of a function that a step calls."""
    return str(getattr(function, "__name__", type(function).__name__))


def declaration(step: Step) -> Word | None:
    """Return the user's assertion that the functions of a step are deterministic.

    None: the step calls no function, or one without an assertion.
    """
    words = [word_of(function) for function in functions_of(step)]
    return words[0] if words and None not in words else None


def check(step: Step) -> None:
    """Check the options of a step that calls Python. Raises: DefinitionError: `SCHEMA_INVALID`, `OPTION_UNKNOWN`."""
    if step.operation not in STEPS:
        return
    options = step.arguments[1]
    for name in ("returns", "state"):
        if name in options:
            schema_of(options[name], name, step.where)
    if options["poison"] not in ("dead-letter", "fail"):
        raise OPTION_UNKNOWN_POISON.error(where=step.where, option="poison", value=options["poison"])


def grouped_by(step: Step) -> tuple[Any, ...]:
    """Return the key of a step with a state, as the user wrote it."""
    return keys_of(step.arguments[1]["key"]) if step.operation == "stateful" else tuple(step.arguments[0])


def operations(step: Step, had: Counter[str], has: Counter[str]) -> Counter[str]:
    """Return the operations after a step. Expressions around a function only pass rows on: the function alone counts.

    Args: had: those before it. has: those in its plan.
    """
    if step.operation not in STEPS:
        return has
    return had if declaration(step) is not None else had + Counter({CALL: 1})


def with_functions(decided: str, node: Node) -> str:
    """Return the formulas on which results depend, with the functions that they call. Args: node: the last step."""
    functions = [function_text(function) for step in steps_of(node) for function in functions_of(step)]
    return "; ".join([decided, *functions]) if functions else decided
