"""Fixtures of the tests of what comes from outside."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.gate import Gate
from tests.integration.live import Wire


@pytest.fixture
def gates(wire: Wire) -> Iterator[Callable[..., Gate]]:
    """Make gates of one source, one after the other."""
    made: list[Gate] = []

    def make(**options: Any) -> Gate:
        made.append(Gate(wire, **options))
        return made[-1]

    yield make
    for gate in made:
        gate.close()
