"""Hadoop's configuration of a session has no defaults of YARN, and does not say where other defaults come from."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Two defaults of YARN, and one that Spark reads.
HOST, QUEUE, BUFFER = "yarn.resourcemanager.hostname", "yarn.queue.name", "io.file.buffer.size"


def _bytes(spark: "SparkSession", conf: Any) -> int:
    """Return the size of a configuration as tasks get it."""
    written = spark._jvm.org.apache.hadoop.io.DataOutputBuffer()
    conf.write(written)
    return int(written.getLength())


def _values(conf: Any) -> dict[str, str]:
    found, each = dict[str, str](), conf.iterator()
    while each.hasNext():
        entry = each.next()
        found[entry.getKey()] = entry.getValue()
    return found


def test_what_tasks_get_has_no_defaults_of_yarn(spark: "SparkSession") -> None:
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    assert conf.get(HOST) is None
    assert conf.get(BUFFER) is not None
    assert conf.getPropertySources(BUFFER) is None or "default" not in str([*conf.getPropertySources(BUFFER)])
    whole = spark._jvm.org.apache.hadoop.conf.Configuration()
    kept = spark.sparkContext._jsc.hadoopConfiguration()
    assert _bytes(spark, kept) < 0.5 * _bytes(spark, whole), "half of the settings, without the names of files"


@pytest.mark.parametrize("yarn", [False, True])
def test_what_somebody_has_set_stays(spark: "SparkSession", yarn: bool) -> None:
    conf = spark._jvm.org.apache.hadoop.conf.Configuration()
    before = _values(conf)
    assert HOST in before
    conf.set(HOST, "mine")
    conf.set(QUEUE, "", "a file of the user's")
    conf.set("some.default", "1")
    left = spark._jvm.org.falkirk.HadoopDefaults.forget(conf, yarn)
    after = _values(conf)
    expected = {k: v for k, v in before.items() if yarn or not k.startswith("yarn.")}
    assert after == {**expected, HOST: "mine", QUEUE: "", "some.default": "1"}
    assert left == len(after)
    assert [*conf.getPropertySources(HOST)] == ["programmatically"]
    assert [*conf.getPropertySources(QUEUE)] == ["a file of the user's"]
