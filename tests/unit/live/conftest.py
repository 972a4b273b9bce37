"""Fixtures of the tests of checkpoints in an object store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from falkirk.recovery.decision_store import Store
from tests.unit.live.machines import Machine


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The database of all machines of a test."""
    return Store(tmp_path / "decisions.db")


@pytest.fixture
def machine(tmp_path: Path, store: Store) -> Callable[[str], Machine]:
    """Return a function that makes a machine with a name."""
    return lambda name: Machine(tmp_path, store, name)
