"""Object clients: pyarrow's clients of an object store or an HDFS, with the times that they wait."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem, resolve_s3_region

from falkirk.platform.data import HDFS, endpoint_url
from falkirk.platform.hadoop_site import web_addresses
from falkirk.platform.web_hdfs import WebHdfs
from falkirk.platform.web_hdfs_files import hdfs_system

#: The address of an object store, or None for S3 itself; and the region. Of an HDFS: its namenodes' HTTP addresses, and
#: its scheme.
Server = tuple[str | None, str | None]

#: The time for an answer, the time for a connection, and the time after the first try in which others may begin. The
#: main thread of a host asks too, and a host that shows nothing for 40 s is replaced. So the client repeats nothing,
#: except in copies and in reads of Parquet files. There it asks for each part this often, as nobody else repeats it.
OBJECT_ANSWER_S, CONNECT_S, TRIES_S, PART_TRIES = 8.0, 5.0, 15.0, 3
#: The variable of AWS's clients, and the lock of those who change it.
_CHECKSUMS, _ENVIRONMENT = "AWS_REQUEST_CHECKSUM_CALCULATION", threading.Lock()


def server_of(scheme: str, authority: str) -> Server:
    """Return the server that the environment and the files of settings name for a bucket, or for an HDFS.

    Raises: OSError. ValueError: a file of settings is damaged.
    """
    if scheme == HDFS:
        return ",".join(web_addresses(authority)), HDFS
    endpoint = endpoint_url()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return endpoint, region or (resolve_s3_region(authority) if endpoint is None else None)


def clients_of(server: Server) -> tuple[FileSystem, FileSystem]:
    """Return two clients of a server; the second one repeats requests itself. Raises: OSError."""
    endpoint, region = server
    if region == HDFS:
        client = WebHdfs(str(endpoint).split(","), OBJECT_ANSWER_S, CONNECT_S)
        return hdfs_system(client), hdfs_system(client, PART_TRIES)
    with nullcontext() if endpoint is None else few_checksums():
        first, patient = (
            S3FileSystem(
                endpoint_override=endpoint,
                region=region,
                request_timeout=OBJECT_ANSWER_S,
                connect_timeout=CONNECT_S,
                retry_strategy=AwsStandardS3RetryStrategy(max_attempts=tries),
                allow_delayed_open=True,  # one request for a small file, not three
            )
            for tries in (1, PART_TRIES)
        )
    return first, patient


#: The same, once per process, for paths that another process has sent.
clients_here = cache(clients_of)


@contextmanager
def few_checksums() -> Iterator[None]:
    """Let clients that are made in the block send checksums only where S3 demands them, as Hadoop's client does.

    By default pyarrow's client sends a CRC-64 after the content of each upload. S3 knows it, and some other servers
    answer 400. The client takes this from the environment alone, when it is made; a user's value has priority.
    """
    with _ENVIRONMENT:  # before the look at the variable: another thread's value is no user's
        before = os.environ.get(_CHECKSUMS)
        os.environ[_CHECKSUMS] = before or "when_required"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_CHECKSUMS]
            else:
                os.environ[_CHECKSUMS] = before
