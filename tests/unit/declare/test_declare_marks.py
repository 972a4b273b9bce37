"""Marks of a batch's parameters: each way to write one, and the unknown ones that Falkirk refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import pytest

import falkirk as fk
import falkirk as renamed
from falkirk import View as Newest
from falkirk.declare.parts import DeclaredProcessor

#: The alias of a marked type.
Weights = Annotated[Any, "of words", fk.View]
DataFrame = Any
Body = Callable[..., Any]


def declared(body: Body, *, batch: bool = True) -> DeclaredProcessor:
    """Declare a function as a batch or a stream, and return its processor."""
    app = fk.App("shop")
    (app.batch(rows=3) if batch else app.stream())(body)
    return app.processors[body.__name__]


def evaluated(body: Body) -> Body:
    """Return the same function, whose annotations are values instead of texts."""
    code = body.__code__
    made = FunctionType(code, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
    made.__annotations__ = {name: eval(text, body.__globals__) for name, text in body.__annotations__.items()}
    return made


def bare(events: Any, found: fk.View) -> Any: ...
def annotated(events: Any, found: Annotated[DataFrame, fk.View]) -> Any: ...
def documented(events: Any, found: Annotated[DataFrame, "the newest", fk.View]) -> Any: ...
def by_alias(events: Any, found: Weights) -> Any: ...
def by_other_name(events: Any, found: Annotated[DataFrame, Newest]) -> Any: ...
def by_other_module(events: Any, found: renamed.View) -> Any: ...
def inside(events: Any, found: Annotated[fk.View, "the newest"]) -> Any: ...


WAYS = (bare, annotated, documented, by_alias, by_other_name, by_other_module, inside)


@pytest.mark.parametrize("body", [*WAYS, *map(evaluated, WAYS)])
def test_a_view_is_a_view_however_it_is_written(body: Body) -> None:
    assert declared(body).views == {"found"}


def test_stamps_too() -> None:
    def stamped(events: Annotated[DataFrame, fk.Stamped], others: fk.Stamped) -> Any: ...

    assert declared(stamped).stamped == {"events": "stamp", "others": "stamp"}


def test_a_text_is_understood_where_its_names_are_out_of_reach() -> None:
    def here(events: local.DataFrame, found: typing.Annotated[local.DataFrame, fk.View]) -> Any: ...  # type: ignore[name-defined] # noqa: F821

    assert declared(here).views == {"found"}


def test_a_function_may_use_what_is_assigned_later() -> None:
    def early(events: Any, found: Annotated[DataFrame, fk.View]) -> Any:
        return later

    assert declared(early).views == {"found"}
    later = None


def ordinary(
    untyped,  # type: ignore[no-untyped-def]
    anything: Any,
    frame: DataFrame,
    stream: fk.Stream,
    maybe: fk.Stream | None,
    named: Annotated[DataFrame, "fk is a module", 3],
    unknown: Nowhere,  # type: ignore[name-defined] # noqa: F821
    missing: Path.nothing,  # type: ignore[name-defined]
    text: "not Python at all",  # type: ignore[valid-type, syntax] # noqa: F722
) -> Any:
    """Read much, and mark none of it."""


def test_ordinary_annotations_stay_ordinary() -> None:
    found = declared(ordinary)
    assert (found.views, found.stamped) == (frozenset(), {})
    assert declared(ordinary, batch=False).reads == found.reads


def latest(events: Any, found: fk.Latest) -> Any: ...  # type: ignore[name-defined]
def latest_inside(events: Any, found: Annotated[DataFrame, fk.Latest]) -> Any: ...  # type: ignore[name-defined]
def mistyped(events: Any, found: Annotated[DataFrame, "x", fk.Veiw]) -> Any: ...  # type: ignore[name-defined]
def elsewhere(events: Any, found: renamed.view) -> Any: ...  # type: ignore[name-defined]
def quoted(events: Any, found: Annotated[DataFrame, "fk.View"]) -> Any: ...
def policy(events: Any, found: Annotated[DataFrame, fk.Lazy]) -> Any: ...
def endpoint(events: Any, found: fk.Kafka) -> Any: ...
def made(events: Any, found: Annotated[DataFrame, fk.View("found")]) -> Any: ...
def optional(events: Any, found: fk.View | None) -> Any: ...
def both(events: Any, found: Annotated[DataFrame, fk.View, fk.Stamped]) -> Any: ...


@pytest.mark.parametrize(
    "body", [latest, latest_inside, mistyped, elsewhere, quoted, policy, endpoint, made, optional, both]
)
def test_what_is_not_understood_is_refused(body: Body) -> None:
    app = fk.App("shop")
    with pytest.raises(fk.DefinitionError) as caught:
        app.batch(rows=3)(body)
    error = caught.value
    assert error.condition == "ANNOTATION_UNKNOWN"
    assert error.parameters["parameter"] == "found"
    where: Any = error.where
    assert (where.file, where.line) == (__file__, body.__code__.co_firstlineno)
    assert "Annotated[DataFrame, fk.View]" in str(error.hint)
    assert not app.processors


@pytest.mark.parametrize("body", [bare, annotated, evaluated(annotated)])
def test_a_stream_looks_views_up(body: Body) -> None:
    assert declared(body, batch=False).views == {"found"}


def test_a_stream_has_no_stamps() -> None:
    def stamped(events: Any, found: fk.Stamped) -> Any: ...

    with pytest.raises(fk.DefinitionError) as caught:
        declared(stamped, batch=False)
    assert (caught.value.condition, caught.value.parameters["parameter"]) == ("MARK_MISPLACED", "found")
    assert "fk.Eager()" in str(caught.value.hint)


def test_a_stream_needs_more_than_views() -> None:
    def only(found: fk.View) -> Any: ...

    with pytest.raises(fk.DefinitionError) as caught:
        declared(only, batch=False)
    assert caught.value.condition == "UPSTREAM_MISSING"


def test_an_eager_stream_is_a_batch_and_has_them() -> None:
    app = fk.App("shop")
    app.stream(fk.Eager())(annotated)
    assert app.processors["annotated"].views == {"found"}


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older versions of Python evaluate annotations at once")
def test_annotations_may_have_names_that_only_type_checkers_know() -> None:
    program = "def late(events: unknown.Frame, found: Annotated[unknown.Frame, fk.View]): ..."
    scope: dict[str, Any] = {"fk": fk, "Annotated": Annotated}
    exec(compile(program, "shop.py", "exec", dont_inherit=True), scope)
    assert declared(scope["late"]).views == {"found"}
