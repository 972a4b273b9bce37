"""The session that Falkirk builds reads and writes Kafka, and commits checkpoint files all at once or not at all."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from falkirk.platform.local_data import LocalData
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.partitions import batch_partitions, limit_partitions
from falkirk.spark_setup.spark import missing_settings, spark_session


def test_what_is_written_to_kafka_is_read_again(spark: SparkSession, broker: Broker, tag: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(tag, 2, 1)])[tag].result(10)
    rows = spark.range(100).selectExpr("cast(id as string) key", "cast(id * id as string) value")
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    rows.write.format("kafka").options(**options, topic=tag).save()
    read = spark.read.format("kafka").options(**options, subscribe=tag).load()
    found = read.selectExpr("cast(key as string) key", "cast(value as string) value").collect()
    assert sorted((int(r.key), int(r.value)) for r in found) == [(n, n * n) for n in range(100)]


@pytest.mark.parametrize("home", ["[client] {a,b}", "a*", "what?", "back\\slash"])
def test_a_home_may_have_the_characters_of_patterns_in_its_path(spark: SparkSession, tmp_path: Path, home: str) -> None:
    (tmp_path / "a:b").mkdir()  # a pattern would list it, and Spark knows no such name
    epoch = LocalData(tmp_path / home / "epoch")
    epoch.write(spark.range(3).coalesce(1).write)
    assert spark.read.schema("id LONG").parquet(*epoch.rows()).count() == epoch.count_rows() == 3


def test_the_built_session_is_the_active_one_and_lacks_nothing(spark: SparkSession) -> None:
    assert spark_session("another name") is spark
    assert missing_settings(spark) == ()


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Any:
    """Spark's manager of checkpoint files, as our session sets it, over `tmp_path`."""
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    folder = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
    assert folder.getFileSystem(configuration).getClass().getSimpleName() == "BareLocalFileSystem"
    checkpointing = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    return checkpointing.CheckpointFileManager.create(folder, configuration)


def write(files: Any, spark: SparkSession, file: Path, content: bytes, *, overwrite: bool = False) -> Any:
    """Begin to write a checkpoint file; it exists when the caller has closed the result."""
    jvm: Any = spark._jvm
    stream = files.createAtomic(jvm.org.apache.hadoop.fs.Path(str(file)), overwrite)
    stream.write(content)
    stream.flush()
    return stream


def test_a_checkpoint_file_appears_whole_or_not_at_all(files: Any, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "7"
    stream = write(files, spark, file, b"half of it")
    assert not file.exists(), (
        "what a crash leaves now is a temporary file, which no reader of the log takes for a batch"
    )
    assert not [name for name in os.listdir(tmp_path) if name.isdigit()]
    stream.cancel()
    assert os.listdir(tmp_path) == []
    write(files, spark, file, b"all of it").close()
    assert file.read_bytes() == b"all of it"
    assert sorted(os.listdir(tmp_path)) == [".7.crc", "7"]


def test_a_committed_file_is_not_replaced(files: Any, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "7"
    write(files, spark, file, b"first").close()
    with pytest.raises(Py4JJavaError, match="already exists"):
        write(files, spark, file, b"second").close()
    assert file.read_bytes() == b"first"


def test_a_crash_before_the_checksum_is_in_place_leaves_a_readable_file(
    files: Any, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "7"
    write(files, spark, file, b"all of it").close()
    (tmp_path / ".7.crc").unlink()  # the data is renamed first, its checksum second
    jvm: Any = spark._jvm
    stream = files.open(jvm.org.apache.hadoop.fs.Path(str(file)))
    assert bytes(stream.readAllBytes()) == b"all of it"
    stream.close()


def looked_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the state at the fork of a worker: the objects that no collection visits, and the loaded modules."""
    import pyspark

    for _ in batches:
        pass
    rows = {
        "kept": [gc.get_freeze_count()],
        "imported": ["pyspark.worker" in sys.modules and "pyarrow.acero" in sys.modules],
        "source": [str(pyspark.__file__)],
    }
    yield pa.RecordBatch.from_pydict(rows)


def test_python_workers_are_forked_with_what_they_need(spark: SparkSession) -> None:
    (found,) = (
        spark.range(0, 1, 1, 1).mapInArrow(looked_through, "kept LONG, imported BOOLEAN, source STRING").collect()
    )
    assert found.kept > 10_000, "garbage is collected behind each task, and would look through all that is imported"
    assert found.imported
    assert ".zip" not in found.source, "what is in Spark's zip is compiled by each worker anew"


def test_a_name_in_the_jvm_is_asked_for_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm: Any = spark._jvm
    of_another: Any = spark.newSession()._jvm
    jvm.org.apache.spark.sql.functions.col("a")
    asked = []
    client = type(jvm._gateway_client)
    send = client.send_command

    def noted(self: Any, command: str, *args: Any, **options: Any) -> Any:
        asked.append(command)
        return send(self, command, *args, **options)

    monkeypatch.setattr(client, "send_command", noted)
    jvm.org.apache.spark.sql.functions.col("a")
    of_another.org.apache.spark.sql.functions.col("a")
    assert not [command for command in asked if command.startswith("r\n")]


def test_a_class_that_was_not_there_is_looked_for_again(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    package = jvm.org.apache.spark.falkirk
    assert package.NotThere is not package.NotThere, "py4j says that it is a package, and a jar may come with it yet"
    assert package.notthere is package.notthere


def test_a_field_is_read_each_time(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    assert jvm.java.lang.Long.MAX_VALUE == 2**63 - 1
    assert "MAX_VALUE" not in vars(jvm.java.lang.Long)


def test_a_session_for_batches_reads_small_files_in_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """By default each small file of a folder is a task, up to the number of slots."""
    for number in range(12):
        (tmp_path / f"{number}.json").write_text('{"n": 1}\n')
    limited, default = spark.newSession(), spark.newSession()
    limit_partitions(limited)
    default.conf.unset("spark.sql.leafNodeDefaultParallelism")  # which the session of tests has set

    def tasks(of: SparkSession) -> int:
        return of.read.schema("n INT").json(str(tmp_path)).rdd.getNumPartitions()

    assert tasks(limited) == batch_partitions(spark) < tasks(default)
