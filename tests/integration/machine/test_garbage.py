"""Objects in the JVM that Python no longer uses are forgotten there, in batches."""

import gc
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import GatewayClient

from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTS = 100


def _kept(spark: "SparkSession", ids: list[str]) -> int:
    """Return how many of these objects the JVM keeps for Python."""
    bindings = spark.sparkContext._gateway.java_gateway_server.getGateway().getBindings()
    return sum(bindings.containsKey(each) for each in ids)


def test_the_jvm_forgets_what_python_no_longer_uses(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    sent: Counter[str] = Counter()
    monkeypatch.setattr(GatewayClient, "garbage_collect_object", lambda *_: sent.update(["one by one"]))
    objects = [spark._jvm.java.util.ArrayList() for _ in range(OBJECTS)]
    ids = [each._target_id for each in objects]
    assert _kept(spark, ids) == OBJECTS
    objects.clear()
    gc.collect()
    wait_until(lambda: _kept(spark, ids) == 0, 10, "the JVM to forget the objects")
    assert not sent, "py4j sends a command for each object"
