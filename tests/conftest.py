"""Fixtures: one broker and one Spark session per test process."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this test process alone."""
    folder = tmp_path_factory.mktemp("broker")
    yield local_broker.start(folder)
    local_broker.stop(folder)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one Spark session of this test process, able to run live regions."""
    from falkirk.local.spark import session

    active = session("falkirk-tests", master="local[24]")
    yield active
    active.stop()


@pytest.fixture
def tag() -> str:
    """A fresh suffix for topic names."""
    return uuid.uuid4().hex[:8]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A fresh home."""
    return tmp_path / "home"
