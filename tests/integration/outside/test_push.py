"""A push source between HTTP's side and Kafka, without Spark: requests are sent once, kept, answered and dropped."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import read_topic
from falkirk.errors import LogError
from falkirk.http_source import bridge as line
from falkirk.http_source import fits, sender
from falkirk.http_source import service as service
from falkirk.http_source.bridge import Pace
from falkirk.http_source.errors import RequestError
from falkirk.http_source.registry import RequestEntry, RequestRegistry
from falkirk.http_source.sender import RequestSender
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.reader import Reader
from falkirk.plan.planner import plan_application
from falkirk.spark_setup.broker import Broker
from falkirk.steps.dataframes.names import BAD
from falkirk.steps.sources.topics import parse_records, parsing
from tests.clock import SetClock
from tests.integration.gate import Gate, value
from tests.integration.live import Wire
from tests.support import suspend, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_answers_silence_and_retries_beyond_a_restart(gates: Callable[..., Gate]) -> None:
    gate = gates()
    asked, silent, minimal = gate.ask("a"), gate.ask("silent"), gate.ask("minimal", wants_answer=False)
    gate.await_sent(3)
    gate.answer("a")
    assert asked().answer == b'{"id": "a"}'
    gate.progress()
    assert silent().is_silent
    assert silent().answer is None
    assert minimal().is_accepted
    gate.close()

    other = gates()
    assert other.ask("a")().answer == b'{"id": "a"}', "the answer of before is read back"
    other.progress()
    assert other.ask("silent")().is_silent
    waits = other.ask("b")
    other.await_sent(4)
    other.answer("b")
    assert waits().answer == b'{"id": "b"}'
    assert sorted(other.sent()) == ["a", "b", "minimal", "silent"]


def test_a_forged_answer_is_told_to_nobody(gates: Callable[..., Gate]) -> None:
    """An attacker who can read and write the topic of answers is faster than the application."""
    gate = gates()
    mine, yours = gate.ask("mine"), gate.ask("yours")
    gate.await_sent(2)
    gate.answer("yours")
    assert yours().answer == b'{"id": "yours"}'
    copied = gate.last_header
    for header in (None, b"deadbeef/1/0.0.7/0", b"\xff", b"deadbeef/" + b"9" * 5_000 + b"/0.0.7/0", copied):
        gate.put_answer("mine", b"forged", header)
    gate.answer("mine")
    assert mine().answer == b'{"id": "mine"}'
    assert gate.foreign[-1].count == 5
    first = gate.foreign[-1].first
    assert first is not None
    assert (first.partition, first.offset) == (0, 1)


@pytest.mark.parametrize("remembers", [True, False])
def test_a_retry_after_a_restart_is_sent_once_because_the_topic_is_remembered(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    if not remembers:
        monkeypatch.setattr(line, "read_back", lambda records, now_ms: RequestRegistry())
    gate = gates()
    gate.ask("a", timeout_s=600)
    gate.await_sent(1)
    gate.close()
    other = gates()
    waits = other.ask("a")
    other.await_sent(1 if remembers else 2)
    other.answer("a")
    assert waits().answer is not None
    assert other.sent() == (["a"] if remembers else ["a", "a"])


def test_a_gateway_that_starts_after_the_clock_was_set_forgets_nothing_of_the_window(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two requests the clock was set forward by twice the window."""
    trims, forget = [], RequestService.forget
    clock, pace = SetClock(), Pace(trim_s=0.1)
    gate = gates(answers=False, pace=pace, clock=clock)
    gate.ask("a", wants_answer=False)
    gate.await_sent(1)
    clock.ahead_s = 7_200
    gate.ask("b", wants_answer=False)
    gate.await_sent(2)
    gate.close()

    def counted(self: RequestService, *arguments: Any) -> Any:
        trims.append(forget(self, *arguments))
        return trims[-1]

    monkeypatch.setattr(RequestService, "forget", counted)
    other = gates(answers=False, pace=pace, clock=clock)
    other.progress(acknowledged=True)
    assert other.ask("b", wants_answer=False)().is_accepted
    before = len(trims)
    wait_until(lambda: len(trims) > before + 3, 30, "it to look for what may be forgotten")
    assert other.ask("a", wants_answer=False)().is_accepted
    assert trims[-1] == {}
    assert sorted(other.sent()) == ["a", "b"], "a retry would run twice"


@pytest.mark.parametrize("fences", [True, False])
def test_what_a_gateway_that_hung_had_on_its_way_never_arrives(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, fences: bool
) -> None:
    """Both know of the same request: the former one began to send it, and the client asked the next one again."""
    topic = wire.topic("requests")

    def begun(name: str) -> RequestSender:
        if not fences:
            monkeypatch.setattr(sender, "Producer", lambda given: Producer({**given, "transactional.id": name}))
        return RequestSender(Connection.of(wire.bootstrap), topic, b"the key", lambda: False)

    former = begun(f"one-{wire.tag}")
    former._producer.begin_transaction()
    former._producer.produce(topic, key=b"a", value=value("a"))
    assert former._producer.flush(30) == 0
    latter = begun(f"two-{wire.tag}")
    now_ms = int(time.time() * 1000)
    latter.send([(RequestEntry(id="a", digest=b"", at_ms=now_ms, stamped_ms=now_ms), value("a"))])
    if fences:
        with pytest.raises(LogError):
            former._try("sending requests", lambda: former._producer.commit_transaction(10))
    else:
        former._try("sending requests", lambda: former._producer.commit_transaction(10))
    committed = {"bootstrap.servers": wire.bootstrap, "isolation.level": "read_committed"}
    found = [record for record in read_topic(committed, topic) if record.value is not None]
    assert len(found) == (1 if fences else 2)


def test_only_what_is_acknowledged_and_old_is_dropped(gates: Callable[..., Gate]) -> None:
    gate = gates(window_s=1.0, answers=False, pace=Pace(trim_s=0.2))
    gate.ask("a", wants_answer=False)
    gate.await_sent(1)
    gate.progress()
    gate.ask("a", wants_answer=False)()
    begun_s = time.monotonic()
    wait_until(lambda: time.monotonic() > begun_s + 1.5, 10, "the window to be over")
    assert gate.sent() == ["a"], "its readers may still ask for it"
    gate.progress(acknowledged=True)
    wait_until(lambda: not gate.sent(), 30, "it to be dropped")
    wait_until(
        lambda: gate.service._registry is not None and gate.service._registry.newest_ms() is None,
        30,
        "it to be forgotten",
    )
    gate.ask("a", wants_answer=False)
    gate.await_sent(1)


@pytest.mark.parametrize("reads_on", [True, False])
def test_a_request_is_silent_when_all_answers_up_to_there_were_read(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch, reads_on: bool
) -> None:
    lags = threading.Event()
    lags.set()
    poll = Reader.poll
    gate = gates()
    monkeypatch.setattr(Reader, "poll", lambda self, timeout_s: [] if lags.wait(0.05) else poll(self, timeout_s))
    if not reads_on:
        monkeypatch.setattr(Reader, "is_at", lambda self, ends: True)
    waits = gate.ask("a")
    gate.await_sent(1)
    gate.answer("a")
    gate.progress()
    gate.ask("a", wants_answer=False)()
    if not reads_on:
        assert waits().is_silent, "though there is an answer: the test sees it"
        return
    with pytest.raises(RequestError) as late:
        gate.ask("a", timeout_s=0.5)()
    assert late.value.condition == "RESULT_AWAITED"
    monkeypatch.setattr(Reader, "poll", poll)
    assert waits().answer is not None


def test_while_the_broker_hangs_clients_are_told_and_nothing_is_sent_twice(
    own_broker: Broker, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "AWAY_S", 0.3)
    process = own_broker.process()
    assert process is not None
    with closing(Gate(Wire(bootstrap=own_broker.bootstrap, tag=tag))) as gate:
        _hang_while_clients_ask(gate, process)


def _hang_while_clients_ask(gate: Gate, process: psutil.Process) -> None:
    suspend(process)
    try:
        for request_id in ("a", "a", "b"):
            with pytest.raises(RequestError) as refused:
                gate.ask(request_id, timeout_s=0.5)()
            assert (refused.value.condition, refused.value.status) == ("BROKER_AWAY", 503)
    finally:
        process.resume()
    waits = gate.ask("a")
    gate.await_sent(1)
    gate.answer("a")
    assert waits().answer is not None
    assert gate.sent() == ["a"], "b was refused before it was sent"


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (LogError("BROKER_AWAY", "no answer to the commit.", certainty="maybe"), "BROKER_AWAY"),
        (ValueError("a bug of ours"), "GATEWAY_FAILED"),
    ],
)
def test_a_line_that_fails_begins_again_and_nobody_waits_for_nothing(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch, error: Exception, condition: str
) -> None:
    gate = gates()
    real, failures = RequestSender.send, iter([True])

    def send(self: RequestSender, requests: Any) -> Any:
        places = real(self, requests)
        if next(failures, False):
            raise error
        return places

    monkeypatch.setattr(RequestSender, "send", send)
    with pytest.raises(RequestError) as refused:
        gate.ask("a")()
    assert (refused.value.condition, refused.value.status) == (condition, 503)

    def asks_again() -> bool:
        try:
            gate.ask("a", timeout_s=0.1)()
        except RequestError as error:
            return error.condition == "RESULT_AWAITED"
        return True

    wait_until(asks_again, 60, "the service to be opened again")
    gate.answer("a")
    assert gate.ask("a")().answer is not None
    assert gate.sent() == ["a"], "it was sent, though nobody was told"


# -- with Spark -------------------------------------------------------------------------------------------------------

DDL = (
    "id STRING NOT NULL, b BYTE, i INT, l LONG, f FLOAT, d DOUBLE, flag BOOLEAN, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, inner STRUCT<n: LONG NOT NULL>, counts MAP<STRING, INT>"
)


def test_what_fits_is_what_spark_reads(spark: "SparkSession") -> None:
    schema = spark.createDataFrame([], DDL).schema
    bodies: list[dict[str, Any]] = [
        {"b": -128}, {"b": 127}, {"i": 2**31 - 1}, {"l": -(2**63)}, {"l": 2**63 - 1}, {"f": 1}, {"f": 3.4e38},
        {"d": 1}, {"d": -1.5e300}, {"d": 10**30}, {"flag": True}, {"day": "2026-11-21"}, {"day": "0001-01-01"},
        {"at": "2026-11-21T20:44:14"}, {"at": "2026-11-21T20:44:14.5Z"}, {"at": "2026-11-21T20:44:14.123456+02:00"},
        {"local": "2026-11-21T20:44:14.25"}, {"raw": "aGVsbG8="}, {"raw": ""}, {"tags": []}, {"tags": ["ä", None, ""]},
        {"inner": {"n": 5}}, {"counts": {"a b": 1, "c": None}}, {"id": "\u2028\u0000\U0001f600"},
    ]  # fmt: skip
    values = [fits.encode({"id": str(n)} | body, schema) for n, body in enumerate(bodies)]
    texts = F.array(*[F.lit(v.decode()) for v in values])
    raw = spark.range(0, 1, 1, 1).select(F.posexplode(texts)).selectExpr(
        "CAST(NULL AS BINARY) AS key", "CAST(col AS BINARY) AS value", "0 AS partition", "CAST(pos AS LONG) AS offset"
    )  # fmt: skip
    found = parse_records(raw, parsing(fk.Kafka("t", schema=DDL), spark)).data.collect()
    assert not [(body, row[BAD]) for body, row in zip(bodies, found, strict=True) if row[BAD] is not None]
    for body, row in zip(bodies, found, strict=True):
        assert all(row[name] is not None for name in body)


def pushed(http: fk.Http, *, delivery: str = "exactly-once", key: str | None = "id", reads: str = "queries") -> fk.App:
    app = fk.App("pushed")
    app.source("queries", http)
    app.source("events", fk.Kafka("events", schema="id STRING"))
    app.sink("replies", reads, fk.Kafka("out", key=key), delivery=delivery)
    return app


SCHEMA = "id STRING NOT NULL, word STRING"


@pytest.mark.parametrize(
    ("condition", "app"),
    [
        ("SOURCE_UNREAD", pushed(fk.Http("/q", schema=SCHEMA), reads="events")),
        ("ID_INVALID", pushed(fk.Http("/q", schema="id LONG"))),
        ("COLUMN_MISSING", pushed(fk.Http("/q", schema=SCHEMA, id="other"), key=None)),
        ("TYPE_UNSUITABLE", pushed(fk.Http("/q", schema="id STRING, price DECIMAL(10, 2)"))),
        ("SCHEMA_INVALID", pushed(fk.Http("/q", schema="id STRIN"))),
        ("ANSWERS_INVALID", pushed(fk.Http("/q", schema=SCHEMA, answers="others"))),
        ("ANSWERS_INVALID", pushed(fk.Http("/q", schema=SCHEMA, answers="replies"), key=None)),
        ("ACKNOWLEDGED_UNDONE", pushed(fk.Http("/q", schema=SCHEMA), delivery="at-most-once")),
    ],
)
def test_what_could_not_be_promised_is_refused(spark: "SparkSession", condition: str, app: fk.App) -> None:
    with pytest.raises(fk.DefinitionError) as error:
        plan_application(app, spark, "0123abcd")
    assert error.value.condition == condition


def test_a_plan_has_its_sources_of_requests(spark: "SparkSession") -> None:
    plan = plan_application(pushed(fk.Http("/q", schema=SCHEMA, answers="replies")), spark, "0123abcd")
    (source,) = plan.push
    assert (source.topic.topic, source.answers) == ("falkirk.pushed.0123abcd.queries", "out")
    assert plan.regions[0].source.topic == source.topic
