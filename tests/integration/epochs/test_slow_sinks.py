"""Backpressure: if a sink blocks or a step is slow, its input waits in Kafka, and nothing else waits.

When the cause is over, all waiting input is processed. `chaos/test_backpressure.py` has the same application in its own
processes, in the soak.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.here import Here
from tests.integration.slowed import FILE, environment, make_input_wait
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_slow_sink_and_a_slow_step_make_input_wait(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tag, postgres, home).items():
        monkeypatch.setenv(name, value)
    make_input_wait(Here(FILE, broker.bootstrap, home), broker.bootstrap, tag, postgres)
