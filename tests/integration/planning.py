"""Helpers for planning without a broker: the refusals that a plan must give, their lines, and its contents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors.location import SourceLocation
from falkirk.plan.plan import Plan

Body = Callable[[fk.Stream], Any]


def refused(act: Callable[[], Any], condition: str, *, line: int | None = None, **parameters: object) -> Any:
    """Run an action that must raise a definition error. Args: line: in the caller's file; by default that of `act`."""
    with pytest.raises(fk.DefinitionError) as caught:
        act()
    error = caught.value
    assert error.condition == condition, error
    assert isinstance(error.where, SourceLocation)
    code = act.__code__
    assert (error.where.file, error.where.line) == (code.co_filename, line or code.co_firstlineno)
    for name, value in parameters.items():
        assert error.parameters[name] == value
    return error


def line_of(file: str, mark: str) -> int:
    """Return the number of the one line of a file that ends with a mark."""
    lines = Path(file).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return found


def names(plan: Plan) -> list[str]:
    """Return the regions' names."""
    return [region.name for region in plan.regions]


def hop(plan: Plan, region: int = 0) -> tuple[str, tuple[object, ...], str]:
    """Return topic, keys and reason of a region's hop."""
    found = plan.regions[region].hop
    assert found is not None
    return found.topic, found.keys, found.reason
