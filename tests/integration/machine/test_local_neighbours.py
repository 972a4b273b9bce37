"""Other users of the machine: what a process that shares it may call in Spark's driver without the secret."""

import socket
import struct
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

#: Of Spark's network protocol: the type of a call, and of its two kinds of answer.
CALL, ANSWER, REFUSAL = 3, 4, 5


def call_driver(spark: SparkSession, endpoint: str) -> tuple[int, bytes]:
    """Call the driver as a stranger: ask whether it has an endpoint. Return the type of the answer, and what it says.

    What the call holds is a serialized Java object: to read one that somebody made up is to run what he likes.
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
    """Before, any user of the machine was answered, and what he sent was deserialized first."""
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
