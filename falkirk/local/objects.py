"""Objects: the settings and jars with which Spark reads and writes the data of a home in an object store."""

import os
from typing import TYPE_CHECKING, Any, cast

from falkirk.system.data import endpoint_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The class that Spark needs for addresses with the scheme s3a.
FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
#: Spark's setting with the class that decides where the files of a job go.
PROTOCOL = "spark.sql.sources.commitProtocolClass"
_HADOOP = "spark.hadoop."
#: As pyarrow, it takes credentials from the environment, from the files of AWS, or from the machine.
_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def settings(data: str) -> dict[str, str]:
    """Return the settings of a Spark application with its data at an address. The user's own have priority."""
    found = {
        PROTOCOL: "org.falkirk.ListingFiles",
        f"{_HADOOP}falkirk.home": data,
        f"{_HADOOP}fs.s3a.aws.credentials.provider": _CREDENTIALS,
    }
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        found[f"{_HADOOP}fs.s3a.endpoint.region"] = region
    if endpoint := endpoint_url():  # servers beside S3 itself seldom have a name for each bucket
        found |= {
            f"{_HADOOP}fs.s3a.endpoint": endpoint,
            f"{_HADOOP}fs.s3a.path.style.access": "true",
            f"{_HADOOP}fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https:")).lower(),
        }
    return found


def prepare(session: "SparkSession", data: str) -> None:
    """Give a session that already runs these settings, except those that its user has set."""
    context: Any = session.sparkContext
    given = context.getConf()
    for name, value in settings(data).items():
        if name.startswith(_HADOOP) and (given.get(name) is None or name.endswith("falkirk.home")):
            cast(Any, context)._jsc.hadoopConfiguration().set(name.removeprefix(_HADOOP), value)
    session.conf.set(PROTOCOL, settings(data)[PROTOCOL])
