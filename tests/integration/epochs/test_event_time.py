"""Epochs cut by event time, windows that slide, sessions, and states in Python, on real Spark and Kafka: their
contents depend only on the records that were sent, not on interruptions, on portions, or on the number of saved
states."""

import os
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.errors import InternalError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire
from tests.integration.users import chain
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
SLICE_S, LATE_S, GAP_S, OVER = 60, 20, 45, 3
#: Event time of the last record of each partition: it closes all that came before.
END_S = 900
PARTITIONS = 2
#: Fewer and larger epochs, and a newer state after each cut, are the easier case.
IS_SOAK = "FALKIRK_STRIKES" in os.environ
SOAK = pytest.mark.skipif(not IS_SOAK, reason="a soak: it runs with FALKIRK_STRIKES alone")


@cache
def application(tag: str, home: Path, interval: str) -> fk.App:
    """Return the application. Args: interval: between the checkpoints of what keeps a state."""
    app = fk.App(f"times-{tag}", home=home, history=3)
    app.source("clicks", fk.Kafka(f"clicks-{tag}", schema="user STRING NOT NULL, n INT, at TIMESTAMP"))

    @app.batch(every="1 minute", by="at", late="20 seconds")
    def visits(clicks: "DataFrame") -> "DataFrame":
        of_user = clicks.groupBy("user").agg(F.count("*").alias("visits"), F.sum("n").alias("n"))
        return of_user.withColumn("begins", F.lit(str(fk.current_epoch().begins)))

    @app.batch(every="1 minute", by="at", late="20 seconds", over="3 minutes")
    def trends(clicks: "DataFrame") -> "DataFrame":
        return (
            clicks.groupBy().agg(F.count("*").alias("visits")).withColumn("ends", F.lit(str(fk.current_epoch().ends)))
        )

    @app.batch(every="1 minute", by="at", late="20 seconds", policy=fk.Lazy(interval))
    def stays(clicks: "DataFrame") -> "DataFrame":
        complete = fk.sessions(clicks, key="user", time="at", gap="45 seconds")
        stay = complete.groupBy("user", "session").agg(F.count("*").alias("visits"))
        return stay.select("user", "visits", F.unix_seconds("session.begin").alias("begin"))

    @app.stream(fk.Lazy(interval))  # in micro-batches, because of stateful()
    def chains(clicks: fk.Stream) -> fk.Stream:
        return clicks.stateful(chain, key="user", state="chain LONG", returns="user STRING, chain LONG, n INT")

    for name in ("visits", "trends", "stays", "chains"):
        app.sink(name, name, fk.Kafka(f"{name}-{tag}"))
    return app


class Crowd:
    """Clicks that come roughly in the order of their times; some are late. A user's are all in one partition."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.partitions: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
        self._at_s = [0.0] * PARTITIONS

    def click(self, count: int) -> list[list[dict[str, Any]]]:
        """Return the next clicks, by partition."""
        new: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
        for _ in range(count):
            p = self._random.randrange(PARTITIONS)
            self._at_s[p] += self._random.expovariate(1 / 4)
            early = self._random.choice([0, 0, 0, 5, 15, 30, 120])
            user = f"u{self._random.randrange(4)}{p}"
            new[p].append(self._click(user, max(0.0, self._at_s[p] - early)))
        return self._sent(new)

    def close(self) -> list[list[dict[str, Any]]]:
        """Return a click per partition that closes everything before it."""
        return self._sent([[self._click(f"last{p}", END_S)] for p in range(PARTITIONS)])

    def _click(self, user: str, at_s: float) -> dict[str, Any]:
        at = BEGAN + timedelta(seconds=round(at_s, 3))
        return {"user": user, "n": self._random.randrange(100), "at": at.isoformat()}

    def _sent(self, new: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
        for p, rows in enumerate(new):
            self.partitions[p] += rows
        return new

    def judged(self) -> tuple[list[tuple[float, dict[str, Any]]], int]:
        """Return the clicks that are not late, with their seconds, and how many are: by partition alone."""
        good, late = [], 0
        for rows in self.partitions:
            newest = -1e9
            for row in rows:
                at_s = (datetime.fromisoformat(row["at"]) - BEGAN).total_seconds()
                if (at_s // SLICE_S + 1) * SLICE_S <= newest - LATE_S:
                    late += 1
                else:
                    good.append((at_s, row))
                newest = max(newest, at_s)
        return [g for g in good if g[0] < END_S - SLICE_S], late


@pytest.mark.parametrize(
    ("interval", "portion"),
    [
        pytest.param("1 second", 40, marks=SOAK, id="saved often, all at once"),
        pytest.param("10 seconds", 20, id="seldom, bit by bit"),
    ],
)
def test_windows_are_a_property_of_what_was_sent(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch, interval: str,
    portion: int,
) -> None:  # fmt: skip
    wire, crowd = Wire(bootstrap=broker.bootstrap, tag=tag), Crowd(seed=10)
    clicks = wire.topic("clicks", PARTITIONS)
    out = {name: wire.topic(name) for name in ("visits", "trends", "stays", "chains")}
    letters_topic = f"times-{tag}-clicks-by-at.dead-letters"

    def send(portions: list[list[dict[str, Any]]]) -> None:
        for p, rows in enumerate(portions):
            wire.send(clicks, rows, partition=p)

    def click(count: int, query: Query) -> None:
        """Send `count` clicks; each portion becomes a separate epoch before the next one is sent."""
        for _ in range(count // portion):
            before = sorted_upto(query)
            send(crowd.click(portion))
            wait_until(lambda before=before: sorted_upto(query) > before, 60, f"a portion: {query.status}")
        send(crowd.click(count % portion))

    def cut_off(query: Query) -> None:
        wait_until(lambda: not query.isActive, 120, f"the cut: {query.status}")
        query.stop()
        error = query.exception()
        assert isinstance(error, InternalError), error
        assert error.condition == "CUT_OFF"

    # The first epoch has rows of both partitions: in a partition without earlier rows, lateness depends on the cut.
    send(crowd.click(portion))
    record = EpochLog.record
    for behind in (False, True):  # an epoch that was written but not recorded, and one that was not released
        with monkeypatch.context() as patch:
            query = run_here(application(tag, home, interval), Connection.of(broker.bootstrap))
            wait_until(lambda query=query: sorted_upto(query) >= 0, 60, "the first portion")
            before = 40 if behind else 40 - portion
            click(before if IS_SOAK else portion, query)
            wire.await_count(out["chains"], 10 if behind else 1, query)

            def record_and_stop(log: EpochLog, *arguments: Any, behind: bool = behind, **options: Any) -> None:
                if behind:
                    record(log, *arguments, **options)
                raise InternalError("CUT_OFF", "here")

            patch.setattr(EpochLog, "record", record_and_stop)
            send(crowd.click(20))
            cut_off(query)
    query = run_here(application(tag, home, interval), Connection.of(broker.bootstrap))
    try:
        click(40 if IS_SOAK else portion, query)
        send(crowd.close())
        visits, trends, stays, late = expected_of(crowd)
        wire.await_count(out["visits"], len(visits), query)
        wire.await_count(out["trends"], len(trends), query)
        wire.await_count(out["stays"], len(stays), query)
        wire.await_count(out["chains"], sum(map(len, crowd.partitions)), query)
        wait_until(lambda: wire.count(letters_topic) >= late, 60, "what came too late")
    finally:
        query.stop()
    found = {(r["user"], r["begins"]): (r["visits"], r["n"]) for r in wire.rows(out["visits"])}
    assert wire.count(out["visits"]) == len(found)
    assert found == visits
    assert {r["ends"]: r["visits"] for r in wire.rows(out["trends"])} == trends
    assert sorted((r["user"], r["begin"], r["visits"]) for r in wire.rows(out["stays"])) == stays
    assert late > 0
    letters = wire.rows(letters_topic)
    assert len([r for r in letters if r["reason"] == "late"]) == len(letters) == late
    chained: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for rows in crowd.partitions:
        for row in rows:
            before = chained[row["user"]][-1][0] if chained[row["user"]] else 0
            chained[row["user"]].append(((before * 31 + row["n"]) % 1_000_003, row["n"]))
    assert sorted((r["user"], r["chain"], r["n"]) for r in wire.rows(out["chains"])) == sorted(
        (user, *each) for user, all_ in chained.items() for each in all_
    )


def sorted_upto(query: Query) -> int:
    """Return the last epoch of the batch that sorts the clicks by their times."""
    return next(r.last_commit for r in query.status if r.name == "clicks-by-at")


def expected_of(
    crowd: Crowd,
) -> tuple[dict[tuple[str, str], tuple[int, int]], dict[str, int], list[tuple[str, int, int]], int]:
    """Return the visits, trends and stays that the sent clicks must give, and how many clicks are late."""
    good, late = crowd.judged()
    visits: dict[tuple[str, str], list[int]] = defaultdict(list)
    slices: dict[int, int] = defaultdict(int)
    for at_s, row in good:
        number = int(at_s // SLICE_S)
        visits[row["user"], str(BEGAN + timedelta(seconds=number * SLICE_S))].append(row["n"])
        slices[number] += 1
    ends = sorted({s + more for s in slices for more in range(OVER)})
    trends = {
        str(BEGAN + timedelta(seconds=(e + 1) * SLICE_S)): sum(slices.get(e - i, 0) for i in range(OVER)) for e in ends
    }
    return {key: (len(ns), sum(ns)) for key, ns in visits.items()}, trends, sessions_of(good), late


def sessions_of(clicks: list[tuple[float, dict[str, Any]]]) -> list[tuple[str, int, int]]:
    """Return (user, begin in seconds since 1970, clicks) of each session."""
    by_user: dict[str, list[float]] = defaultdict(list)
    for at_s, row in clicks:
        by_user[row["user"]].append(at_s)
    found = []
    for user, times in by_user.items():
        group: list[float] = []
        for at_s in sorted(times):
            if group and at_s - group[-1] >= GAP_S:
                found.append((user, group))
                group = []
            group = [*group, at_s]
        found.append((user, group))
    return sorted((user, int(BEGAN.timestamp() + group[0]), len(group)) for user, group in found)
