"""Other users of the machine: a process without the secret can call nothing in Spark's driver."""

import os
import socket
import struct
import tempfile
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

#: Of Spark's network protocol: the type of a call, and of its two kinds of answer.
CALL, ANSWER, REFUSAL = 3, 4, 5


def call_driver(spark: SparkSession, endpoint: str) -> tuple[int, bytes]:
    """Call the driver as a stranger: ask whether it has an endpoint. Return the type of the answer, and its content.

    The call contains a serialized Java object: a driver that reads a forged one runs the attacker's code.
    """
    jvm = spark._jvm
    assert jvm is not None
    kind = jvm.java.lang.Class.forName("org.apache.spark.rpc.netty.RpcEndpointVerifier$CheckExistence")
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = endpoint
    written = jvm.java.io.ByteArrayOutputStream()
    jvm.java.io.ObjectOutputStream(written).writeObject(kind.getConstructors()[0].newInstance(arguments))
    name = b"endpoint-verifier"
    body = b"\0\0" + struct.pack(">H", len(name)) + name + bytes(written.toByteArray())
    message = struct.pack(">bqi", CALL, 1, len(body)) + body
    port = int(str(spark.conf.get("spark.driver.port")))
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(struct.pack(">q", len(message) + 8) + message)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">q", answer.read(8))
        content = answer.read(size - 8)
    return content[0], content[13:]


def test_a_stranger_on_this_machine_calls_nothing_in_the_driver(spark: SparkSession) -> None:
    """Before, the driver answered any user of the machine, and deserialized the request first."""
    kind, said = call_driver(spark, "HeartbeatReceiver")
    assert kind == REFUSAL, said
    assert b"SaslMessage" in said or b"AuthMessage" in said, said


def test_sparks_own_calls_are_answered(spark: SparkSession, tmp_path: Path) -> None:
    """A file that tasks fetch from their driver comes over the same port."""
    file = tmp_path / f"{tmp_path.name}.txt"
    file.write_text("fetched")
    spark.sparkContext.addFile(str(file))
    name = file.name
    read = spark.sparkContext.parallelize([1], 1).map(lambda _: Path(SparkFiles.get(name)).read_text())
    assert read.collect() == ["fetched"]


def test_other_users_can_not_read_what_a_shuffle_writes(spark: SparkSession) -> None:
    """With the usual umask, Spark's own folders in the temporary folder are readable by all. Before, it used these."""
    assert spark.range(100).repartition(3).count() == 100
    chosen = Path(str(spark.conf.get("spark.local.dir", tempfile.gettempdir())))
    assert list(chosen.glob("blockmgr-*/*/shuffle_*")), "the session writes there"
    found = chosen.stat()
    assert (found.st_uid, found.st_mode & 0o077) == (os.geteuid(), 0)
