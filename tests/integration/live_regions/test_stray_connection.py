"""Strangers connect to the ports of Spark's streaming shuffle, which listens on all interfaces.

Spark 4.3's own writers ask for no secret: they send records to the first client that sends a reader's first message,
and any other message fails the task. With `spark.shuffle.manager.incremental=streaming` this test fails: the stranger
gets bytes, and the application gets no result.
"""

import contextlib
import os
import random
import select
import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.secure import PROTECTION
from tests.integration.live import Wire, await_one, settle
from tests.support import wait_until

ALL_INTERFACES = ("::", "0.0.0.0")
#: Of Spark's network protocol: types of messages.
CHUNK_FETCH, RPC, STREAM, ONE_WAY = 0, 3, 6, 9
#: More of these than this are not answered, although each alone fits into a handshake.
MANY = 1000
#: Random messages for each port.
RANDOM = 40
SEED = int(os.environ.get("FALKIRK_SEED", random.SystemRandom().randrange(10**6)))
SECRET = "very-private-word"
CHECKPOINTS = 3
#: Of Linux.
ETH_P_IP, SO_RCVBUFFORCE = 0x0800, 33
#: Of Linux's lists of sockets: the protocol, its request, the option for a whole list, and the sockets that listen.
SOCK_DIAG, BY_FAMILY, DUMP, LISTENS = 4, 20, 0x301, 1 << 10
#: The pause between two looks for new ports. Without one, they took a core for as long as the test lasted.
LOOK_MS = 5
#: `AuthenticatedServer` keeps so many connections that have proven nothing.
STRANGERS_MAX, MORE = 256, 50


class Stranger:
    """Connects to each new port at once, and sends one of its messages."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
        asking = [_asks(spark, reader) for reader in (0, 1)]
        answered = [
            b"".join(_framed(struct.pack(">bqi", RPC, n, 1) + b"x") for n in range(MANY)),
            b"".join(_framed(struct.pack(">bi", STREAM, 1) + b"x") for _ in range(MANY)),
            b"".join(_framed(struct.pack(">bqi", CHUNK_FETCH, 1, n)) for n in range(MANY)),
        ]
        http = b"GET / HTTP/1.1\r\nHost: stray\r\n\r\n"
        rng = random.Random(SEED)
        self._messages = [*asking, http, b"\0" * 100_000, *answered, *(_random(rng) for _ in range(RANDOM))]
        self._ended, self._answers = threading.Event(), select.poll()
        self._connections: dict[int, socket.socket] = {}
        self.ports: set[int] = set()
        self.received = b""

    def has_found_more_than(self, ports: int) -> bool:
        """Return whether more ports were attacked so far."""
        return len(self.ports) > ports

    def open_ports(self) -> list[int]:
        """Return the ports of Spark's JVM that other machines reach."""
        listening = (c.laddr for c in self._jvm.net_connections() if c.status == psutil.CONN_LISTEN)
        return [address.port for address in listening if address.ip in ALL_INTERFACES]

    def _attack(self) -> None:
        known = frozenset[int]()
        while not self._ended.is_set():
            # This takes 0.05 ms, and to find which of them are the JVM's takes 20 ms and more.
            if (listening := _listening()) != known:
                known = listening
                for port in set(self.open_ports()) - self.ports:
                    self._attack_port(port)
            self._read()

    def _attack_port(self, port: int) -> None:
        self.ports.add(port)
        for message in self._messages:
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 20)
                self._connections[connection.fileno()] = connection
                connection.setblocking(False)
                self._answers.register(connection, select.POLLIN)
                connection.send(message)

    def _read(self) -> None:
        """Read what has come within the pause, and close the connections that the other end has closed."""
        for number, _ in self._answers.poll(LOOK_MS):
            read = b""
            with contextlib.suppress(OSError):
                read = self._connections[number].recv(1 << 20)
            self.received += read
            if not read:
                self._answers.unregister(number)
                self._connections.pop(number).close()

    @contextlib.contextmanager
    def attacking(self) -> Iterator[None]:
        """Attack until the end of the block."""
        try:
            with _beside(self._attack, self._ended):
                yield
        finally:
            for connection in self._connections.values():
                connection.close()


def _listening() -> frozenset[int]:
    """Return the ports at which any process of this machine listens. Linux is asked for these sockets alone."""
    ports = set[int]()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as asking:
        for family in (socket.AF_INET, socket.AF_INET6):
            asking.send(
                struct.pack("=IHHIIBBBBI48x", 72, BY_FAMILY, DUMP, 0, 0, family, socket.IPPROTO_TCP, 0, 0, LISTENS)
            )
            ended = False
            while not ended:
                told, at = asking.recv(1 << 16), 0
                while at < len(told):
                    size, kind = struct.unpack_from("=IH", told, at)
                    ended |= kind != BY_FAMILY  # the end of the list, or an error
                    if kind == BY_FAMILY:
                        ports.update(struct.unpack_from(">H", told, at + 20))
                    at += size + 3 & ~3
    return frozenset(ports)


@contextlib.contextmanager
def _beside(work: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    """Run `work`, which ends when the event is set, beside the block."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Listener:
    """Reads what crosses the loopback interface. Only root may do this, on Linux."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
        except (AttributeError, PermissionError) as error:
            pytest.skip(f"this user can't read packets: {error}")
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._socket.bind(("lo", ETH_P_IP))
        self._socket.settimeout(0.2)
        self._ended = threading.Event()
        #: The bytes of each connection in each direction, by the ports of both ends.
        self._bytes = defaultdict[tuple[int, int], bytearray](bytearray)

    def heard(self, ports: set[int]) -> bytes:
        """Return all bytes of TCP connections from or to these ports, one direction after another."""
        return b"".join(heard for ends, heard in self._bytes.items() if ports & {*ends})

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen until the end of the block."""
        with self._socket, _beside(self._listen, self._ended):
            yield

    def _listen(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                packet = self._socket.recv(1 << 18)
                if packet[9] == socket.IPPROTO_TCP:
                    self._note(packet[(packet[0] & 15) * 4 :])

    def _note(self, segment: bytes) -> None:
        content = segment[(segment[12] >> 4) * 4 :]
        if content:
            self._bytes[struct.unpack(">HH", segment[:4])] += content


def _asks(spark: SparkSession, reader: int) -> bytes:
    """Return the first message of a reader, which asks a writer for records."""
    jvm = spark._jvm
    assert jvm is not None
    message = jvm.org.apache.spark.network.shuffle.streaming.CreditControlMessage(0, reader, 1)
    encoded = jvm.io.netty.buffer.Unpooled.compositeBuffer().capacity(message.headerLength())
    message.encode(encoded)
    content = bytes(encoded.getByte(index) & 0xFF for index in range(encoded.readableBytes()))
    return _framed(struct.pack(">bi", ONE_WAY, len(content)) + content)


def _framed(message: bytes) -> bytes:
    return struct.pack(">q", len(message) + 8) + message


def _random(rng: random.Random) -> bytes:
    """Return random bytes, a frame with a random size, a message of any type, or a damaged request of a handshake."""
    noise, kind = rng.randbytes(rng.choice([1, 8, 60, 3_000])), rng.random()
    size = rng.choice([0, -1, 1, 2**31 - 1, -(2**31), len(noise)])
    if kind < 0.2:
        return noise
    if kind < 0.4:
        return struct.pack(">q", rng.choice([0, 7, 8, -1, 2**31, 2**63 - 1, -(2**63), len(noise)])) + noise
    if kind < 0.7:
        return _framed(struct.pack(">bqi", rng.choice([*range(-2, 14), 127]), rng.choice([0, 1, -1]), size) + noise)
    # Spark's AuthMessage: a tag, then an application, a salt and a text, each behind its length.
    parts = [struct.pack(">i", rng.choice([len(part)] * 3 + [size])) + part for part in (b"app", noise[:16], noise)]
    challenge = b"".join([b"\xfb", *parts])[: rng.choice([None, None, rng.randint(0, 60)])]
    return _framed(struct.pack(">bqi", RPC, 1, rng.choice([len(challenge)] * 3 + [size])) + challenge)


def test_a_stranger_gets_nothing_and_stops_nothing(spark: SparkSession, broker: Broker, tag: str, home: Path) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING", key="word"))
    counts = stream.groupBy("word").agg(F.count("*").alias("version"))
    stranger = Stranger(spark)
    with stranger.attacking():
        query = counts.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="2 seconds")
        try:
            for number in range(1, CHECKPOINTS + 1):
                attacked = len(stranger.ports)
                wire.send(events, [{"word": SECRET}])
                wire.await_count(out, number, query)
                await_one(query, partial(stranger.has_found_more_than, attacked), "the ports of the next batch")
            settle(query)
        finally:
            query.stop()
    assert query.status[0].restarts == 0, f"FALKIRK_SEED={SEED}"
    assert Counter(row["version"] for row in wire.rows(out)) == dict.fromkeys(range(1, CHECKPOINTS + 1), 1)
    assert stranger.received == b""


@pytest.mark.parametrize("protected", [False, True])
def test_nobody_reads_the_records_of_a_protected_shuffle(
    spark: SparkSession, broker: Broker, tag: str, home: Path, *, protected: bool
) -> None:
    """A listener looks for a word in all bytes of the shuffle. It finds the word only without `--secure`.

    Its settings hold for all connections. A local session reads them for each new one of a shuffle.
    """
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING", key="word"))
    counts = stream.groupBy("word").agg(F.count("*").alias("version"))
    listener, ports = Listener(), set[int]()
    with _connections(spark, PROTECTION if protected else {}), listener.listening():
        query = counts.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="60 seconds")
        try:
            for number in (1, 2):
                wire.send(events, [{"word": SECRET}] * 50)
                wire.await_count(out, 50 * number, query)
                ports.update(Stranger(spark).open_ports())
        finally:
            query.stop()
    assert query.status[0].restarts == 0
    heard = listener.heard(ports)
    handshake = spark.sparkContext.applicationId.encode()
    assert handshake in heard, "the ends have named the application to each other"
    assert len(heard) > 100 * len(SECRET), "and records have crossed"
    assert (SECRET.encode() in heard) is not protected


def test_idle_strangers_are_disconnected(spark: SparkSession, broker: Broker, tag: str, home: Path) -> None:
    """Those who say nothing lose their connections: the oldest ones when there are too many, and each after a while.

    Otherwise they would keep them until the end of the micro-batch, and the process would run out of files.
    """
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, out = wire.topic("events"), wire.topic("out")
    stream = fk.read(fk.Kafka(events, schema="word STRING", key="word"))
    counts = stream.groupBy("word").agg(F.count("*").alias("version"))
    query = counts.write(fk.Kafka(out, key="word"), kafka=wire.bootstrap, home=str(home), interval="60 seconds")
    strangers, ports = list[socket.socket](), Stranger(spark).open_ports

    def connect(number: int) -> None:
        (port, *_) = ports()
        for _ in range(number):
            strangers.append(socket.create_connection(("127.0.0.1", port), 20))

    try:
        wire.send(events, [{"word": SECRET}])
        wire.await_count(out, 1, query)
        with _patience_ms(spark, 600_000):
            connect(STRANGERS_MAX + MORE)
            wait_until(lambda: sum(map(_is_closed, strangers)) >= MORE, 30, "the oldest to be disconnected")
            assert sum(map(_is_closed, strangers)) < 2 * MORE, "the others have their time"
        with _patience_ms(spark, 200):
            connect(10)
            wait_until(lambda: all(map(_is_closed, strangers[-10:])), 30, "the newest to be disconnected")
        wire.send(events, [{"word": SECRET}])
        wire.await_count(out, 2, query)
        assert ports(), "the micro-batch still runs"
    finally:
        for stranger in strangers:
            stranger.close()
        query.stop()
    assert query.status[0].restarts == 0


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def _patience_ms(spark: SparkSession, patience_ms: int) -> Iterator[None]:
    """Have new connections prove within this time that they know the secret."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    field = loader.loadClass("org.falkirk.AuthenticatedServer").getDeclaredField("patienceMs")
    field.setAccessible(True)  # it is Java's
    before = field.get(None)
    field.set(None, jvm.java.lang.Long(str(patience_ms)))
    try:
        yield
    finally:
        field.set(None, jvm.java.lang.Long(str(before)))


@contextlib.contextmanager
def _connections(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Have new connections of the streaming shuffle use these settings."""
    conf = cast(Any, spark).sparkContext._jsc.sc().conf()
    before = {name: conf.get(name, "") for name in settings}
    for name, value in settings.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            conf.set(name, value) if value else conf.remove(name)
