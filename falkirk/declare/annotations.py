"""Annotations: reads which parameters of a function are marked with `View` or `Stamped`.

A mark is the annotation itself, or part of an ``Annotated[DataFrame, fk.View]``. With ``from __future__ import
annotations`` both are texts, perhaps with names that only type checkers know. A name of Falkirk that is no mark is
refused: the input would otherwise be read as if it had no mark.
"""

import ast
import contextlib
import inspect
import operator
import re
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

from falkirk.declare.checks import body_location, parameters_of
from falkirk.declare.parts import Stamped
from falkirk.declare.stream import Body, Stream
from falkirk.declare.view import View
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.declare import ANNOTATION_UNKNOWN, MARK_MISPLACED

#: The marks by their names.
_MARKS: dict[str, type] = {mark.__name__: mark for mark in (View, Stamped)}
#: How users call the package, for texts whose names can't be evaluated.
_PACKAGE = ("fk", "falkirk")


@dataclass(frozen=True, slots=True)
class _UnknownName:
    """A name of Falkirk that does not exist. Args: text: as the user wrote it."""

    text: str


def marks_of(body: Body) -> dict[str, type]:
    """Return the marked parameters of a batch's function, each with its mark.

    Raises: DefinitionError: `ANNOTATION_UNKNOWN`: an annotation names something of Falkirk that is no mark.
    """
    found: dict[str, type] = {}
    for name, parameter in parameters_of(body).items():
        ours = _ours(_value(parameter.annotation, body))
        marks = [mark for mark in _MARKS.values() if any(each is mark for each in ours)]
        if len(ours) > 1 or len(ours) != len(marks):
            raise _unknown(body, name, parameter.annotation)
        if marks:
            found[name] = marks[0]
    return found


def views_of_stream(body: Body) -> frozenset[str]:
    """Return the parameters of a function of streams that are marked as views.

    Raises: DefinitionError: `MARK_MISPLACED`: another mark; as `marks_of`.
    """
    marks = marks_of(body)
    for parameter, mark in marks.items():
        if mark is not View:
            raise MARK_MISPLACED.error(
                where=body_location(body), parameter=parameter, body=body.__name__, mark=mark.__name__
            )
    return frozenset(marks)


def _unknown(body: Body, parameter: str, annotation: object) -> DefinitionError:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return ANNOTATION_UNKNOWN.error(where=body_location(body), parameter=parameter, annotation=text, body=body.__name__)


def _ours(annotation: object) -> list[object]:
    """Return the names of Falkirk in an annotation, except the types that functions get."""
    if get_origin(annotation) is Annotated:
        kind, *notes = get_args(annotation)
        return [*_ours(kind), *filter(_is_ours, notes)]
    if any(_ours(part) for part in get_args(annotation)):  # such as `View | None`
        return [annotation]
    is_given = isinstance(annotation, type) and (issubclass(annotation, Stream) or annotation.__name__ == "Collection")
    return [annotation] if _is_ours(annotation) and not is_given else []


def _is_ours(value: object) -> bool:
    if isinstance(value, str):
        return re.fullmatch(rf"({'|'.join(_PACKAGE)})\.\w+", value) is not None
    return str(getattr(value, "__module__", "")).partition(".")[0] == "falkirk"


def _value(annotation: object, body: Body) -> object:
    """Return an annotation as a value; `Any` stands for texts, and parts of texts, that can't be evaluated."""
    if not isinstance(annotation, str):
        return annotation
    try:
        node = ast.parse(annotation.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return Any
    function: Any = inspect.unwrap(body)
    scope = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the variable has no value yet
            scope[name] = cell.cell_contents
    return _evaluated(node, scope)


def _evaluated(node: ast.expr, scope: dict[str, Any]) -> object:
    text = ast.unparse(node)
    with contextlib.suppress(Exception):  # the user's names may not exist, or may raise anything
        return eval(text, scope)
    match node:
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=ast.Tuple(elts=parts)) if (
            name == "Annotated"
        ):
            return operator.getitem(Annotated, tuple(_evaluated(part, scope) for part in parts))
        case ast.Attribute(value=ast.Name(id=package), attr=name):
            module = scope.get(package, sys.modules["falkirk"] if package in _PACKAGE else None)
            if isinstance(module, ModuleType) and module.__name__.partition(".")[0] == "falkirk":
                return getattr(module, name, _UnknownName(text))
            return _MARKS.get(name, Any)
        case ast.Name(id=name):
            return _MARKS.get(name, Any)
    return Any
