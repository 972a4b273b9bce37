"""history, rollback, gc and stop, on an application in the session of the tests, while it runs and while it is
stopped."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.here import Here
from tests.integration.rolling_back import FILE, back_and_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_back_and_on_while_it_runs_and_while_it_is_stopped(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_and_on(broker, home, tag, monkeypatch, lambda bootstrap, folder, _: Here(FILE, bootstrap, folder))
