"""Objects in the JVM that Python no longer uses are forgotten there, in batches."""

import gc
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import GatewayClient

from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTS = 500


def _bindings(spark: "SparkSession") -> int:
    """Return how many objects the JVM keeps for Python."""
    return int(spark.sparkContext._gateway.java_gateway_server.getGateway().getBindings().size())


def test_the_jvm_forgets_what_python_no_longer_uses(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    sent: Counter[str] = Counter()
    monkeypatch.setattr(GatewayClient, "garbage_collect_object", lambda *_: sent.update(["one by one"]))
    gc.collect()
    before = _bindings(spark)
    objects = [spark._jvm.java.util.ArrayList() for _ in range(OBJECTS)]
    assert _bindings(spark) >= before + OBJECTS
    objects.clear()
    gc.collect()
    wait_until(lambda: _bindings(spark) < before + OBJECTS / 10, 10, "the JVM to forget the objects")
    assert not sent, "py4j sends a command for each object"
