"""Samples: the newest records of each source of an application, with their stamps."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Files, Kafka
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.spark import kafka_options
from falkirk.steps.dataframes.names import OUR_COLUMNS, STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources import reads
from falkirk.steps.sources.files import file_rows
from falkirk.steps.sources.topics import parse_records, parsing


def of_topic(session: SparkSession, connection: Connection, topic: Kafka, rows: int) -> Frame:
    """Return the newest good records of a topic, at most `rows`, as a frame that can be read repeatedly.

    Raises: LogError.
    """
    topics = Topics(connection)
    first, ends = topics.first_positions(topic.topic), topics.readable_positions(topic.topic)
    each = -(-rows // max(1, len(ends)))
    begins = {p: max(first.get(p, 0), end - each) for p, end in ends.items()}
    client = kafka_options(session, connection.of_topic(topic.topic)[0])
    raw = reads.spark_records(session, client, topic.topic, first=begins, headers=topic.reads_headers)
    frame = parse_records(raw, parsing(topic, session))
    return Frame(data=frame.data.where(frames.is_good()).localCheckpoint())


def of_folder(session: SparkSession, folder: Files, rows: int) -> Frame:
    """Return records of the newest files of a folder, at most `rows`."""
    found = sorted((p for p in Path(folder.path).iterdir() if p.is_file()), key=lambda p: (p.stat().st_mtime, p.name))
    newest = {path: i for i, path in enumerate(found[-10:])}
    frame = file_rows(session, folder, newest)
    return Frame(data=frame.data.where(frames.is_good()).limit(rows).localCheckpoint())


def of_results(results: DataFrame, rows: int) -> Frame:
    """Return the results of another processor as records, in their present order."""
    columns = [F.col(f"`{c}`") for c in results.columns if c not in OUR_COLUMNS]
    number = F.monotonically_increasing_id().alias("offset")
    place = F.struct(F.lit(0).alias("source"), F.lit(0).alias("partition"), number)
    return frames.good(results.select(*columns, place.alias(STAMP)).limit(rows).localCheckpoint())
