"""Objects: the settings with which Spark reads and writes the data of a home in an object store or an HDFS."""

import os
from typing import TYPE_CHECKING, Any

from falkirk.platform.data import HDFS, endpoint_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The class that Spark needs for addresses with the scheme s3a.
FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
#: Spark's setting with the class that decides where the files of a job go.
PROTOCOL = "spark.sql.sources.commitProtocolClass"
_HADOOP = "spark.hadoop."
#: The setting with the folder of files that are being uploaded; by default a folder in /tmp that others can read.
BUFFERS = f"{_HADOOP}fs.s3a.buffer.dir"
#: As pyarrow, it takes credentials from the environment, from the files of AWS, or from the machine.
_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
#: How long Hadoop's client repeats a request. By default it pauses for as long as the object store was away, for hours
#: after 503. Here it gives up after 4 times 20 s, and the batch tries again. The SDK below it repeats nothing.
_PATIENCE = {
    "attempts.maximum": "0", "connection.establish.timeout": "15s", "connection.timeout": "20s", "retry.limit": "3",
    "retry.throttle.limit": "6",
}  # fmt: skip
#: The default of Hadoop 3.5, "analytics", tries a read 20 times for 30 s each, whatever the settings above say. It also
#: keeps an entry for each object that was ever read (HADOOP-20058), and each epoch has new ones.
_READS = "classic"


#: The same for Hadoop's client of HDFS, which by default waits for minutes.
_HDFS = {
    "dfs.client.failover.max.attempts": "6", "dfs.client.socket-timeout": "20000",
    "ipc.client.connect.max.retries.on.timeouts": "1", "ipc.client.rpc-timeout.ms": "20000",
}  # fmt: skip


def needs_jars(data: str | None) -> bool:
    """Return whether Spark needs jars beside its own for data at an address. It has a client of HDFS."""
    return data is not None and not data.startswith(f"{HDFS}:")


def settings(data: str) -> dict[str, str]:
    """Return the settings of a Spark application with its data at an address. The user's own have priority."""
    found = {PROTOCOL: "org.falkirk.ListingFiles"}
    if not needs_jars(data):
        return found | {f"{_HADOOP}{name}": value for name, value in _HDFS.items()}
    found[f"{_HADOOP}fs.s3a.aws.credentials.provider"] = _CREDENTIALS
    found[f"{_HADOOP}fs.s3a.input.stream.type"] = _READS
    found |= {f"{_HADOOP}fs.s3a.{name}": value for name, value in _PATIENCE.items()}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        found[f"{_HADOOP}fs.s3a.endpoint.region"] = region
    if endpoint := endpoint_url():  # servers beside S3 itself seldom have a name for each bucket
        found |= {
            f"{_HADOOP}fs.s3a.endpoint": endpoint,
            f"{_HADOOP}fs.s3a.path.style.access": "true",
            f"{_HADOOP}fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https:")).lower(),
        }
    return found


def prepare_session(session: "SparkSession", data: str) -> None:
    """Give a session that already runs these settings, except those that its user has set, in a file of Hadoop, too."""
    context: Any = session.sparkContext
    given, hadoop = context.getConf(), context._jsc.hadoopConfiguration()
    for name, value in settings(data).items():
        of_hadoop = name.removeprefix(_HADOOP)
        if of_hadoop != name and given.get(name) is None and not _is_set(hadoop, of_hadoop):
            hadoop.set(of_hadoop, value)
    session.conf.set(PROTOCOL, settings(data)[PROTOCOL])


def _is_set(hadoop: Any, name: str) -> bool:
    """Return whether somebody has set a setting of Hadoop. Its defaults are in files such as core-default.xml."""
    return any(not str(each).endswith("-default.xml") for each in hadoop.getPropertySources(name) or ())
