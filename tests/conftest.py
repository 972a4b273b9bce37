"""Fixtures: one broker, one Spark session and one PostgreSQL per test process, each started when first asked for."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falkirk.coordinator.store import Store
from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker
from tests.postgres import Postgres
from tests.stores import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.running.processes", "tests.running.times", "tests.running.budget", "tests.running.lanes")

# Dozens of drivers that live for a minute each: compiling thoroughly, and in parallel, costs them more than it brings.
# With one compiler alone the JVM keeps 48 MB for code; a driver that had filled them lost the thread of a producer.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


#: Of the session of a test process: each plan runs for a moment, and to generate and compile code for it takes longer.
#: Applications in processes of their own (chaos, cluster) run as users' do.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

#: Tests in these folders start no Spark; they are quick unless they ask for a broker or a database server.
WITHOUT_SPARK = ("theory", "unit", "simulation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make the tests without Spark part of `make test-quick`."""
    for item in items:
        if item.path.parent.name in WITHOUT_SPARK:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this test process alone."""
    folder = tmp_path_factory.mktemp("broker")
    yield local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    local_broker.stop(folder)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be tormented: no other test uses it."""
    folder = tmp_path / "broker"
    yield local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    local_broker.stop(folder)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one Spark session of this test process, able to run live regions."""
    from falkirk.local.spark import session

    active = session("falkirk-tests", master="local[24]", settings=INTERPRETED)
    gateway = active.sparkContext._gateway
    yield active
    active.stop()
    gateway.proc.stdin.close()  # as the end of this process does: the JVM ends with it
    gateway.proc.wait(60)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this test process alone."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, tag: str) -> Place:
    """Where the store of a test is; each test that asks for it runs on both databases."""
    if request.param == "sqlite":
        return Place(where=str(tmp_path / "decisions.db"), identity=tag)
    return Place(where=request.getfixturevalue("postgres").url(), identity=tag)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """A fresh store."""
    opened = place.open()
    yield opened
    opened.close()


@pytest.fixture
def tag() -> str:
    """A fresh suffix for topic names."""
    return uuid.uuid4().hex[:8]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A fresh home."""
    return tmp_path / "home"
