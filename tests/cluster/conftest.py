"""Fixtures of tests that need a cluster, of brokers or of Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import Bed, machines
from tests.cluster.kafka import KafkaCluster
from tests.cluster.secured import Secured, secured

#: JVMs of executors live for a minute or so, as those of drivers do: see tests/conftest.py.
_SETTINGS = """
spark.driver.memory 900m
spark.executor.memory 700m
spark.executor.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m
"""
#: The files that take longest begin first, so that all workers end together.
LONGEST = (
    "test_spark_cluster.py",
    "test_application_rights.py",
    "test_three_brokers.py",
    "test_submit.py",
    "test_kills.py",
    "test_fenced.py",
    "test_failing_regions.py",
    "test_least_rights.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files of this folder first."""
    here, ranks = Path(__file__).parent, {name: rank for rank, name in enumerate(LONGEST)}
    places = [place for place, item in enumerate(items) if item.path.parent == here]
    ordered = sorted((items[place] for place in places), key=lambda item: ranks.get(item.path.name, len(ranks)))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@pytest.fixture(scope="session", autouse=True)
def short_lived_applications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have executors compile quickly and little, and all of Spark take little memory."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(_SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers for the tests of a file. Idle ones use a tenth of a processor, so they end with the file."""
    with KafkaCluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that requires TLS and SASL, and has access control lists, for a file. Each user of a test is new."""
    with secured(tmp_path_factory.mktemp("guarded") / "secured") as broker:
        yield broker


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster of Spark, a broker and a database, for the tests of a file."""
    with machines(tmp_path_factory.mktemp("cluster")) as made:
        yield made
