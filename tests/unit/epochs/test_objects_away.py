"""An object store that does not answer Spark is no failure of an epoch; a missing or changed object is one."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from falkirk.errors import StoreError
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE
from falkirk.plan.batch import Batch
from falkirk.platform.local_data import LocalData
from falkirk.runtime.spark.causes import objects_away, objects_unusable
from falkirk.runtime.spark.epochs.failures import passes, raise_final, retry_text, waits_for
from falkirk.runtime.spark.epochs.inputs import files_found
from falkirk.theory.ids import EpochNumber
from tests.support import outcome

SAID = "PUT 0-byte object on regions/seen: 503: Slow Down"
#: Texts as Spark puts them together, without most of their stack traces.
AWAY = (
    f"Job aborted\norg.apache.hadoop.fs.s3a.AWSServiceThrottledException: {SAID}\n\tat org.apache.hadoop",
    f"Job aborted\nCaused by: software.amazon.awssdk.core.exception.SdkClientException: {SAID}",
    f"Job aborted\nCaused by: software.amazon.awssdk.services.s3.model.S3Exception: {SAID}",
    # Hadoop's client of HDFS.
    f"Job aborted\norg.apache.hadoop.hdfs.BlockMissingException: {SAID}\n\tat org.apache.hadoop",
    "Caused by: org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): "
    f"{SAID}\n\tat org",
    # A task that fetches or uploads a file of an iteration.
    f"Job aborted\nfalkirk.errors.StoreError: {DATA_AWAY.error(where='s3a://shop/x_3.arrow', reason=SAID)}\n\tat org",
)
#: Each with the reason that is told.
UNUSABLE = {
    f"x\n{java}: {reason}\n\tat org.apache": reason
    for java, reason in (
        (
            "Caused by: software.amazon.awssdk.services.s3.model.S3Exception",
            "Access Denied (Service: S3, Status Code: 403, Request ID: 7)",
        ),
        ("org.apache.hadoop.fs.s3a.UnknownStoreException", "`s3a://shop/': Bucket does not exist"),
        ("Caused by: org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException", "No AWS Credentials"),
        ("Caused by: java.lang.ClassNotFoundException", "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"),
        ("Caused by: java.lang.NoClassDefFoundError", "software/amazon/awssdk/core/SdkClient"),
        (
            "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.security.AccessControlException)",
            "Permission denied: user=x, access=WRITE",
        ),
        ("org.apache.hadoop.security.AccessControlException", "SIMPLE authentication is not enabled."),
        ("java.lang.IllegalArgumentException", "java.net.UnknownHostException: company"),
    )
} | {f"falkirk.errors.StoreError: {DATA_UNUSABLE.error(where='s3a://shop/x_3.arrow', reason='no access')}": "no access"}
OTHERS = (
    "java.io.FileNotFoundException: x\nCaused by: software.amazon.awssdk.services.s3.model.NoSuchKeyException: gone",
    "org.apache.hadoop.fs.s3a.RemoteFileChangedException: x",
    "org.apache.hadoop.fs.s3a.RangeNotSatisfiableEOFException: x",
    "java.io.IOException: org.apache.hadoop.fs.s3a.S3AFileSystem",
    "x\norg.apache.hadoop.fs.s3a.AWSBadRequestException: PUT\nCaused by: software.amazon.awssdk.services.s3.model."
    "S3Exception: The key is too long (Service: S3, Status Code: 400, Request ID: 7)",
)


#: Errors of Hadoop's client of HDFS, with their reasons.
HDFS = {
    f"Job aborted\n{java}: {reason}\n\tat org.apache.hadoop": reason
    for java, reason in (
        ("java.net.ConnectException", "Call From a/10.0.0.1 to b:8020 failed on connection exception: refused"),
        ("java.net.SocketTimeoutException", "Call From a to b:8020 failed on socket timeout exception"),
        ("java.io.EOFException", "End of File Exception between local host is: a; destination host is: b"),
        ("java.io.IOException", "DestHost:destPort b:8020 , LocalHost:localPort a:0. Failed on local exception: x"),
        ("org.apache.hadoop.ipc.RemoteException(java.io.IOException)",
         "File /shop/part-0 could only be written to 0 of the 1 minReplication nodes. There are 0 datanode(s) running"),
        ("java.io.IOException", "All datanodes [DatanodeInfoWithStorage[b:9866]] are bad. Aborting..."),
        ("java.io.IOException", "Unable to close file because the last block BP-1 does not have enough replicas."),
    )
}  # fmt: skip


class Failed(Exception):
    """An error of Spark's for `files_found`."""


@pytest.mark.parametrize("text", AWAY)
def test_an_epoch_waits_without_a_limit(text: str) -> None:
    error = Exception(text)
    assert objects_away(error) == SAID
    assert passes(error)
    assert waits_for(error) == f"waiting: the object store does not answer: {SAID}"
    assert retry_text(error, EpochNumber(3)) == f"epoch 3 failed, {waits_for(error)}"


@pytest.mark.parametrize("text", HDFS)
def test_an_epoch_waits_for_an_hdfs(text: str) -> None:
    assert objects_away(Exception(text)) == HDFS[text]
    assert passes(Exception(text))


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_count(text: str) -> None:
    assert objects_away(Exception(text)) is None
    assert objects_unusable(Exception(text)) is None
    assert not passes(Exception(text))


@pytest.mark.parametrize("text", UNUSABLE)
def test_a_cause_that_no_wait_mends_ends_the_batch_at_once(text: str, tmp_path: Path) -> None:
    error, batch = Exception(text), SimpleNamespace(name="seen", where="shop.py:7")
    assert not passes(error)
    with pytest.raises(StoreError) as raised:
        raise_final(error, cast("Batch", batch), LocalData(tmp_path), EpochNumber(3))
    assert (raised.value.condition, raised.value.parameters["reason"]) == ("DATA_UNUSABLE", UNUSABLE[text])


def test_so_does_a_reader_that_looks_for_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("falkirk.runtime.spark.epochs.inputs.SPARK_ERRORS", (Failed,))

    def look(text: str) -> None:
        with files_found(LocalData(tmp_path)):
            raise Failed(text)

    for text in AWAY:
        assert outcome(lambda text=text: look(text)) == "DATA_AWAY"
    for text in UNUSABLE:
        assert outcome(lambda text=text: look(text)) == "DATA_UNUSABLE"
    with pytest.raises(Failed):
        look(OTHERS[0])
