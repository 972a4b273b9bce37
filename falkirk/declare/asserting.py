"""Lets a user assert that a function is deterministic, when Falkirk can't find out."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from falkirk.errors.conditions.declare import NOT_A_FUNCTION
from falkirk.errors.location import SourceLocation, caller

#: The attribute of a function that holds the user's assertion.
ASSERTION_ATTRIBUTE = "__falkirk_deterministic__"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismAssertion:
    """A user's assertion that a function is deterministic.

    Args: name: of the function. where: the line of the assertion. because: the user's reason.
    """

    name: str
    where: SourceLocation
    because: str = ""

    def __str__(self) -> str:
        return f"you declare {self.name}() deterministic ({self.where.place}){self.because and f': {self.because}'}"


@overload
def deterministic(function: F, /, *, because: str = "") -> F: ...
@overload
def deterministic(*, because: str = "") -> Callable[[F], F]: ...
def deterministic(function: Any = None, /, *, because: str = "") -> Any:
    """Assert that a function always gives the same results for the same input, for any order of the rows.

    Use it for a Python function of rows (`map_rows`, `stateful`, a `udf`), or for a processor's function; then it
    covers all steps of the processor. The assertion is part of the plan, and `falkirk verify determinism` checks it on
    a sample. If it is wrong, results after a failure may contradict published results.

    Args: because: the reason, for readers of the plan.
    Raises: DefinitionError: `NOT_A_FUNCTION`.
    """
    where = caller()
    if function is None:
        return lambda found: _marked(found, where, because)
    return _marked(function, where, because)


def assertion_of(function: object) -> DeterminismAssertion | None:
    """Return the assertion about a function, or about the function that it wraps, or None."""
    found: Any = function
    assertion = getattr(
        inspect.unwrap(found, stop=lambda wrapper: hasattr(wrapper, ASSERTION_ATTRIBUTE)), ASSERTION_ATTRIBUTE, None
    )
    return assertion if isinstance(assertion, DeterminismAssertion) else None


def _marked(function: Any, where: SourceLocation, because: str) -> Any:
    if not callable(function):
        raise NOT_A_FUNCTION.error(where=where, name=type(function).__name__)
    inner = getattr(function, "func", None)  # a udf: Spark calls its inner function
    marked = function if inner is None or isinstance(function, functools.partial) else inner
    name = getattr(marked, "__name__", type(marked).__name__)
    try:
        setattr(marked, ASSERTION_ATTRIBUTE, DeterminismAssertion(name=name, where=where, because=because))
    except (AttributeError, TypeError):  # a function in C
        return _marked(functools.wraps(function)(lambda *args, **named: function(*args, **named)), where, because)
    return function
