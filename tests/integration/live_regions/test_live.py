"""Live regions in one process: each record gives its result once, over stops and restarts. A record that does not fit
is a dead letter."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import AggregateModel, Count, Guarantee, InputRow, Latest, RowPlace, check_keyed, outputs_of
from falkirk.spark_setup.broker import Broker
from falkirk.testing import run
from tests.integration.live import Wire, settle
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = "word STRING NOT NULL, n INT"


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


def counted(events: str) -> fk.Stream:
    """Count per word over a topic that is partitioned by word."""
    stream = fk.read(fk.Kafka(events, schema=f"{WORDS}, text STRING", key="word"))
    return stream.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"), fk.latest_value("text"))


def events_of(words: str, n: int = 0) -> list[dict[str, Any]]:
    """Return one event per letter."""
    return [{"word": word, "n": n + i} for i, word in enumerate(words)]


def versions(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the versions of each word in the order in which they were released."""
    found = defaultdict(list)
    for row in rows:
        found[row["word"]].append(row["version"])
    return found


BAD: list[tuple[bytes | None, str]] = [
    (b"not json", "does not fit"),
    (b"", "does not fit"),
    (None, "the value is null"),
    (b'{"word": "a", "n": "x"}', "does not fit"),
    (b'{"word": "a", "n": 99999999999}', "does not fit"),
    (b'{"word": null, "n": 1}', "column word is null"),
    (b'{"n": 1}', "column word is null"),
    (b'[{"word": "a", "n": 1}]', "does not fit"),
    (b"5", "does not fit"),
    (b"null", "does not fit"),
    (b"\xff\xfe\x00", "does not fit"),
    (b'{"word": "a", "n": 1', "does not fit"),
    (json.dumps({"word": "large", "n": 1, "text": "x" * 20_000}).encode(), "too large"),
]


@pytest.mark.quick
def test_what_does_not_fit_is_a_dead_letter_once_and_all_else_comes_through(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events"), wire.topic("out", max_message_bytes="10000")
    sink, dead = fk.Kafka(out, key="word"), f"{out}.dead-letters"
    for number, (value, _) in enumerate(BAD):
        wire.send(events, [*events_of("aab"), value], partition=0)
        wire.send(events, [*events_of("xyx"), value if number % 2 else b"{"], partition=1)
    good, bad = 6 * len(BAD), 2 * len(BAD)
    query = counted(events).write(sink, kafka=wire.bootstrap, home=str(home), interval="2 seconds")
    wire.await_count(out, good, query)
    wire.await_count(dead, bad, query)
    query.stop()
    assert not query.isActive

    wire.send(events, [*events_of("aab"), None], partition=0)
    query = counted(events).write(sink, kafka=wire.bootstrap, home=str(home), interval="2 seconds")
    wire.await_count(out, good + 3, query)
    wire.await_count(dead, bad + 1, query)
    settle(query)
    wait_until(lambda: query.status[0].dead_letters == bad + 1, 60, "the dead letters are counted")
    query.stop()

    seen = versions(wire.rows(out))
    assert seen == {w: list(range(1, k * len(BAD) + 1)) for w, k in (("x", 2), ("y", 1))} | {
        "a": list(range(1, 2 * len(BAD) + 3)),
        "b": list(range(1, len(BAD) + 2)),
    }
    letters = wire.rows(dead)
    assert Counter((letter["partition"], letter["offset"]) for letter in letters) == Counter(
        [(0, 4 * i + 3) for i in range(len(BAD) + 1)] + [(1, 4 * i + 3) for i in range(len(BAD))]
    )
    by_offset = {letter["offset"]: letter for letter in letters if letter["partition"] == 0}
    for number, (value, reason) in enumerate(BAD):
        letter = by_offset[4 * number + 3]
        assert reason in letter["reason"], letter
        assert letter["topic"] == events
        if value is not None and b"\xff" not in value and reason != "too large":
            assert letter["value"] == value.decode()
    headers = [record for record in wire.records(dead) if record.value is None]
    assert headers == []


def test_at_most_once_skips_what_waited(wire: Wire, home: Path) -> None:
    events, out = wire.topic("events"), wire.topic("out")

    def start() -> Any:
        stream = fk.read(fk.Kafka(events, schema=WORDS, key="word"))
        keyed = stream.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))
        sink = fk.Kafka(out, key="word")
        return keyed.write(sink, kafka=wire.bootstrap, home=str(home), delivery="at-most-once", interval="2 seconds")

    wire.send(events, events_of("abab"))
    query = start()
    wire.await_count(out, 4, query)
    query.stop()
    wire.send(events, events_of("aaaaa", n=100))
    start().stop()  # dies before anything is released; the next one finds the same input waiting, and more
    wire.send(events, events_of("bbbbb", n=200))
    query = start()
    wire.send(events, events_of("ab", n=300))
    wire.await_count(out, 6, query)
    settle(query)
    query.stop()

    inputs = [
        InputRow(key=row["word"], place=RowPlace(r.topic, r.partition, r.offset), row=row)
        for r in wire.records(events)
        for row in [json.loads(r.value or b"")]
    ]
    model = AggregateModel(["word"], {"version": Count(), "n": Latest("n")})
    verdict = check_keyed(inputs, list(outputs_of(wire.records(out))), model)
    assert verdict.satisfies(Guarantee.AT_MOST_ONCE), verdict.anomalies
    assert {row["n"] for row in wire.rows(out) if row["n"] >= 100} == {300, 301}
    assert versions(wire.rows(out)) == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_two_fresh_runs_of_keyed_data_are_equal_byte_for_byte(wire: Wire, home: Path) -> None:
    """The second run is stopped in its midst, so that it computes results again, from a state that it has restored.

    Lists have the order of the records. Spark keeps it: for each record it merges the key's state with a list of one
    element, always in this order.
    """
    events = wire.topic("events")
    for number in range(100):
        wire.send(events, [{"word": f"w{number % 7 * 2}", "n": number, "text": "c b a b"}], partition=0)
        wire.send(events, [{"word": f"w{number % 5 * 2 + 1}", "n": number, "text": "é \u0000"}], partition=1)
    found = []
    for name in ("one", "two"):
        out = wire.topic(name)
        stream = fk.read(fk.Kafka(events, schema=f"{WORDS}, text STRING", key="word"))
        parts = stream.select("word", "n", F.split("text", " ").alias("parts")).explode("parts", "part")
        keyed = parts.groupBy("word", "part").agg(
            F.count("*").alias("version"),
            F.sum(F.col("n") / 3).alias("total"),
            F.first("n").alias("first"),
            F.collect_list("n").alias("list"),
            F.listagg(F.col("n").cast("string"), F.lit(",")).alias("joined"),
            fk.latest_value("n"),
        )
        sink = fk.Kafka(out, key=["word", "part"])
        for results in (600,) if name == "one" else (200, 600):
            query = keyed.write(sink, kafka=wire.bootstrap, home=str(home / name), interval="2 seconds")
            wire.await_count(out, results, query)
            query.stop()
        for row in wire.rows(out):
            assert row["list"] == sorted(row["list"]), row
            assert (len(row["list"]), row["list"][-1]) == (row["version"], row["n"])
            assert row["joined"] == ",".join(map(str, row["list"]))
        by_partition = defaultdict(list)
        for record in wire.records(out):
            by_partition[record.partition].append((record.key, record.value))
        found.append({p: sorted(rows, key=lambda row: row[0] or b"") for p, rows in by_partition.items()})
    assert found[0] == found[1]
    with run(keyed) as t:  # the test kit gives the same results for each key
        t.feed(events, [json.loads(record.value or b"") for record in wire.records(events)])
        assert by_key(t.read("result")) == by_key(wire.rows(out))


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return rows by their word and part, in their order."""
    found = defaultdict(list)
    for row in rows:
        found[row["word"], row["part"]].append(row)
    return found


def test_values_survive_a_hop(wire: Wire, home: Path) -> None:
    """A hop changes no value of any column, to the microsecond."""
    events, out = wire.topic("events", 2), wire.topic("out", 1)
    nested = "a ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, INT>"
    schema = f"k STRING, t TIMESTAMP, d DOUBLE, b BINARY, e DECIMAL(20, 5), {nested}"
    row = {
        "k": "ü\"\\\n", "t": "2024-02-29T12:34:56.123456Z", "d": 0.1, "b": "AP8=", "a": [{"x": 1, "y": None}, None],
        "m": {"": 1, "z": None}, "e": 123456789012345.00001,
    }  # fmt: skip
    wire.send(events, [row], partition=0)
    wire.send(events, [{"k": None}], partition=1)
    stream = fk.read(fk.Kafka(events, schema=schema))
    micros = F.unix_micros("t").alias("micros")
    before = [F.to_json(F.struct("d", "b", "a", "m", "e"), {"ignoreNullFields": "false"}).alias("before")]
    kept = stream.select("*", micros, *before)
    after = F.to_json(F.struct("d", "b", "a", "m", "e"), {"ignoreNullFields": "false"})
    keyed = kept.groupBy("k").agg(*[fk.latest_value(c) for c in ("t", "d", "b", "a", "m", "e", "micros", "before")])
    judged = keyed.select("k", "micros", F.unix_micros("t").alias("micros_after"), "before", after.alias("after"))
    query = judged.write(fk.Kafka(out), kafka=wire.bootstrap, home=str(home), interval="60 seconds")
    wire.await_count(out, 2, query)
    query.stop()
    for found in wire.rows(out):
        assert found["before"] == found["after"]
        assert found["micros"] == found["micros_after"]
    with run(judged) as t:  # in the test kit, too
        t.feed(events, [row, {"k": None}])
        assert sorted(map(str, t.read("result"))) == sorted(map(str, wire.rows(out)))
    assert {found["k"] for found in wire.rows(out)} == {row["k"], None}
