"""What files of a cluster say about Spark: where paths without a scheme are, and how times are read."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.spark_setup import objects
from falkirk.spark_setup import spark as local_spark
from falkirk.spark_setup.observing import observing
from falkirk.spark_setup.spark import missing_settings, session_settings, spark_session
from tests.support import outcome
from tests.unit.home.test_local_spark import TIMES, WELL, FakeSession, lacks, started, there_is


@pytest.fixture(autouse=True)
def without_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("application_jars", "module_jar", "jar_key"):
        monkeypatch.setattr(local_spark, name, lambda: "ours")


@pytest.mark.parametrize("policy", ["LEGACY", "EXCEPTION"])
def test_a_session_that_reads_times_in_another_way_is_refused(policy: str) -> None:
    """Files of settings on clusters often have LEGACY. A session of Falkirk's own does not take it from there."""
    assert lacks(FakeSession(WELL | {TIMES: policy})) == {TIMES: ("CORRECTED", policy)}
    assert session_settings(buffer_timeout="1 ms", state_partitions=2)[TIMES] == "CORRECTED"


def test_batches_read_times_as_the_session_does() -> None:
    """A session of the user's may have been corrected, while new ones have what the files of settings say."""

    def session(policy: str) -> Any:
        settings = {TIMES: policy}
        conf = SimpleNamespace(get=lambda name: settings.get(name, ""), set=settings.__setitem__)
        return SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(master="local[2]"))

    mine = session("CORRECTED")
    mine.newSession = lambda: session("LEGACY")
    assert observing(mine).conf.get(TIMES) == "CORRECTED"


@pytest.mark.parametrize("data", [None, "hdfs://name/h"])
def test_paths_without_a_scheme_are_of_this_machine(monkeypatch: pytest.MonkeyPatch, data: str | None) -> None:
    """The files of Hadoop's settings often name an HDFS for them. Spark reads these files, and would write there."""
    name = "spark.hadoop.fs.defaultFS"
    for master in ("local[4]", "spark://a:7077"):
        assert started(monkeypatch, master, data=data)[name] == "file:///"
    assert name not in started(monkeypatch, "yarn", data=data), "Spark itself needs the HDFS there"
    monkeypatch.setattr(local_spark, "missing_settings", lambda active, data, secure: ())
    found = [name in started(monkeypatch, master, data="s3a://shop/home") for master in ("local[4]", "spark://a:7077")]
    assert found == [True, False], "on a cluster, executors write the files of this home by whole addresses"


def test_a_session_whose_paths_are_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the user's, whose own paths may be there: Falkirk does not change what they mean."""
    active: Any = FakeSession(WELL)
    active.place = "hdfs://name:8020"
    assert lacks(active) == {"spark.hadoop.fs.defaultFS": ("file:///", "hdfs://name:8020")}
    active._there[objects.FILE_SYSTEM] = True
    active.sparkContext = active.context("yarn")
    assert missing_settings(active, "s3a://shop/home") == (), "executors write the files of this home by whole paths"
    assert len(missing_settings(active, "hdfs://name/h")) == 1
    active.sparkContext = active.context("local[2]", getConf=lambda: SimpleNamespace(get=lambda name: None))
    there_is(active, monkeypatch)
    assert outcome(lambda: spark_session("application", data="hdfs://name/h")) == "SESSION_SETTINGS_MISSING"
    assert "fs.defaultFS" not in active.hadoop


def test_what_the_users_files_of_hadoop_say_about_their_object_store_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise their own reads would ask another server, or with other credentials, once an application starts."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://objects:9000")
    active: Any = FakeSession(WELL)
    mine = "fs.s3a.aws.credentials.provider"
    active.sources = {mine: ["core-default.xml", "core-site.xml"], "fs.s3a.endpoint": ["core-default.xml"]}
    asked = lambda name: "5" if name == "spark.hadoop.fs.s3a.retry.limit" else None  # noqa: E731
    active.sparkContext = active.context("local[2]", getConf=lambda: SimpleNamespace(get=asked))
    objects.prepare_session(active, "s3a://shop/home")
    assert active.hadoop["fs.s3a.endpoint"] == "http://objects:9000"
    assert {mine, "fs.s3a.retry.limit"}.isdisjoint(active.hadoop)
