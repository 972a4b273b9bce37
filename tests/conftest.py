"""Fixtures, each started at its first use: a broker per run, a Spark session and a PostgreSQL per test process."""

import gc
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, settings

from falkirk.recovery.decision_store import Store
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from tests.postgres import Postgres
from tests.running.shared import shared_broker
from tests.stores import Place
from tests.strategies import examples
from tests.wires import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = tuple(f"tests.running.{name}" for name in ("processes", "times", "budget", "lanes", "imports"))

# Dozens of drivers live for a minute each, so thorough or parallel compilation costs them more than it saves. With only
# one compiler the JVM reserves 48 MB for code; a driver that filled them lost the thread of a producer.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")
# Each worker loads thousands of tests and leaves hardly any garbage. Looking for it took two fifths of that time.
gc.disable()
# A busy machine may take seconds for one example of a property. Hypothesis chooses others in each run.
settings.register_profile(
    "falkirk", deadline=None, max_examples=examples(50), print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("falkirk")
#: A standby costs as much CPU time as a start. Tests of it ask for one.
os.environ.setdefault("FALKIRK_STANDBY", "0")
#: The session of a test process lives longer than others. A larger young generation collects garbage less often. The
#: second value is for a JVM that several workers share.
LARGE_YOUNG = ("-Xms1g -Xmn512m", "-Xms2g -Xmn1g")

#: The tasks that each worker's session can run at a time.
SLOTS = 24

#: Settings of a test process's session: each plan runs briefly, and code generation for it takes longer. Applications
#: in separate processes (chaos, cluster) run with the users' settings.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

#: The number of tasks in which a test's rows and small files are read. By default it is the number of slots, 24, and
#: each row of a test would be a task.
FEW = 2

#: Tests in these folders start no Spark; they are quick unless they use a broker or a database server.
WITHOUT_SPARK = ("tests/theory/", "tests/unit/", "tests/simulation/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the tests without Spark to `make test-quick`."""
    for item in items:
        if item.nodeid.startswith(WITHOUT_SPARK):
            item.add_marker(pytest.mark.quick)


def pytest_collection_finish() -> None:
    """Collect garbage again, but no longer visit the loaded objects: the thousands of tests stay until the end.

    By default Python looks through all objects for each 70,000 new ones. That took 8 % of the time of `theory/` and
    `unit/checker/`.
    """
    gc.freeze()
    gc.set_threshold(700, 10, 100)
    gc.enable()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of all test processes of this run: nobody may stop it, not even for a moment."""
    mine = tmp_path_factory.getbasetemp()
    with shared_broker(mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) as running:
        yield running


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker for one test, which may stop or kill it."""
    folder = tmp_path / "broker"
    yield local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    local_broker.stop(folder)


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The only Spark session of this test process, able to run live regions.

    The workers of a run share a JVM, except for the worker of `OWN_JVM` (`tests/running/lanes.py`). If the time of each
    test is measured, each has its own.
    """
    from falkirk.spark_setup.jars import s3_jars
    from falkirk.spark_setup.spark import spark_session
    from tests.running import lanes, times
    from tests.running.shared import shared_session

    mine, workers = tmp_path_factory.getbasetemp(), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    run = mine.parent
    if workers == 1 or times.FILE in os.environ or lanes.HAS_OWN in pytestconfig.stash:
        workers, run = 1, mine
    more = {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, s3_jars())),  # for homes in object stores
        "spark.driver.memory": "1g" if workers == 1 else "3g",
        "spark.default.parallelism": str(SLOTS),
    }

    def start() -> "SparkSession":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_SUBMIT_OPTS", f"{os.environ['SPARK_SUBMIT_OPTS']} {LARGE_YOUNG[workers > 1]}")
            settings = {**INTERPRETED, "spark.sql.leafNodeDefaultParallelism": str(FEW)}
            return spark_session("falkirk-tests", master=f"local[{SLOTS * workers}]", settings=settings, conf=more)

    with shared_session(run, workers - 1, start) as active, pytest.MonkeyPatch.context() as patch:
        context = type(active.sparkContext)
        parallelize = context.parallelize  # of rows in a list
        patch.setattr(context, "parallelize", lambda self, rows, slices=None: parallelize(self, rows, slices or FEW))
        yield active


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for this test process."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, tag: str) -> Place:
    """The place of a test's store; each test with this fixture runs on both databases."""
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


@pytest.fixture
def wire(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wire, str]]:
    """A wire to the server, and the URL of its near end."""
    folder = tmp_path_factory.mktemp("w")
    opened = Wire(postgres.folder, folder)
    yield opened, postgres.url().replace(quote_plus(str(postgres.folder)), str(folder))
    opened.close()
