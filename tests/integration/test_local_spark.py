"""The session that Falkirk builds reads and writes Kafka, and commits checkpoint files all at once or not at all."""

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from falkirk.local.broker import Broker
from falkirk.local.spark import missing_settings, session


def test_what_is_written_to_kafka_is_read_again(spark: SparkSession, broker: Broker, tag: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(tag, 2, 1)])[tag].result(10)
    rows = spark.range(100).selectExpr("cast(id as string) key", "cast(id * id as string) value")
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    rows.write.format("kafka").options(**options, topic=tag).save()
    read = spark.read.format("kafka").options(**options, subscribe=tag).load()
    found = read.selectExpr("cast(key as string) key", "cast(value as string) value").collect()
    assert sorted((int(r.key), int(r.value)) for r in found) == [(n, n * n) for n in range(100)]


def test_the_built_session_is_the_active_one_and_lacks_nothing(spark: SparkSession) -> None:
    assert session("another name") is spark
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
    """Begin to write a checkpoint file; it is there once the result is closed."""
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
