"""Asserting: what a user vouches for, of a function that nobody can look into."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation, caller

#: The attribute of a function that holds what was said of it.
WORD = "__falkirk_deterministic__"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A user's word that a function is deterministic. Args: name: of the function. where: it was said. because: why."""

    name: str
    where: SourceLocation
    because: str = ""

    def __str__(self) -> str:
        return f"you declare {self.name}() deterministic ({self.where.place}){self.because and f': {self.because}'}"


@overload
def deterministic(function: F, /) -> F: ...
@overload
def deterministic(*, because: str = "") -> Callable[[F], F]: ...
def deterministic(function: Any = None, /, *, because: str = "") -> Any:
    """Say of a function that it always gives the same for the same input, in whatever order rows come.

    Of a Python function that rows go through (`map_rows`, `stateful`, a `udf`), or of a processor's own: then of all
    that it does. What is said is part of the plan, and `falkirk audit` looks whether it holds. Where it does not,
    results that were released may be contradicted after a failure.

    Args: because: why it is so, for those who read the plan.
    Raises: DefinitionError: `NOT_A_FUNCTION`.
    """
    where = caller()
    if function is None:
        return lambda found: _marked(found, where, because)
    return _marked(function, where, because)


def word_of(function: object) -> Word | None:
    """Return what was said of a function, or of the one that it wraps, if anything was."""
    found: Any = function
    word = getattr(inspect.unwrap(found, stop=lambda wrapper: hasattr(wrapper, WORD)), WORD, None)
    return word if isinstance(word, Word) else None


def _marked(function: Any, where: SourceLocation, because: str) -> Any:
    if not callable(function):
        raise DefinitionError(
            "NOT_A_FUNCTION",
            f"fk.deterministic() is said of a function, not of {type(function).__name__}.",
            where=where,
            hint="Put it above the function: @fk.deterministic.",
        )
    inner = getattr(function, "func", None)  # of a udf, which Spark calls by its function
    marked = function if inner is None or isinstance(function, functools.partial) else inner
    name = getattr(marked, "__name__", type(marked).__name__)
    try:
        setattr(marked, WORD, Word(name=name, where=where, because=because))
    except (AttributeError, TypeError):  # a function of C's
        return _marked(functools.wraps(function)(lambda *args, **named: function(*args, **named)), where, because)
    return function
