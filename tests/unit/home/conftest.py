"""Fixtures of the tests of claims: a partition in memory, and copies of a home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.home.claims import Copies, Partition


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> Partition:
    return Partition(monkeypatch)


@pytest.fixture
def copies(partition: Partition, tmp_path: Path) -> Iterator[Copies]:
    made = Copies(tmp_path)
    yield made
    made.close()
