"""Fixtures of the tests of homes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.spark_setup import objects as local_objects
from tests.objects import KEY, SECRET, ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """An object store. Hadoop keeps the client of a bucket while the JVM lives, so the tests of a session share it."""
    store = ObjectStore()
    yield store
    store.close()


@pytest.fixture
def objects(spark: "SparkSession", object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An object store that applications of this test use."""
    patience = {
        "attempts.maximum": "0", "retry.limit": "2", "retry.interval": "50ms", "retry.throttle.limit": "2",
        "retry.throttle.interval": "50ms",
    }  # fmt: skip
    monkeypatch.setattr(local_objects, "_PATIENCE", patience)
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    system: Any = spark._jvm.System  # type: ignore[union-attr]  # this JVM has another environment
    for name, value in (("aws.accessKeyId", KEY), ("aws.secretAccessKey", SECRET)):
        system.setProperty(name, value)
    return object_store
