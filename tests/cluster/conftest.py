"""Fixtures of tests that need a cluster, of brokers or of Spark."""

from collections.abc import Iterator

import pytest

from tests.cluster.kafka import KafkaCluster

#: JVMs of executors live for a minute or so, as those of drivers do: see tests/conftest.py.
_SETTINGS = """
spark.driver.memory 900m
spark.executor.memory 700m
spark.executor.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m
"""


@pytest.fixture(scope="session", autouse=True)
def short_lived_applications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have executors compile quickly and little, and all of Spark take little memory."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(_SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers for this test process."""
    with KafkaCluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster
