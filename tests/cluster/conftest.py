"""Fixtures of tests that need more than one broker."""

from collections.abc import Iterator

import pytest

from tests.cluster.kafka import KafkaCluster


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers for this test process."""
    with KafkaCluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster
