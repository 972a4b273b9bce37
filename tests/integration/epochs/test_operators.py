"""Operators with state: their results do not depend on the cuts of epochs, and a row on which a user's function fails
affects no other row. The tests run on real Spark, without a broker."""

import inspect
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.cut import SLICE, ByTime
from falkirk.declare.nodes import ProcessorNode
from falkirk.declare.parts import DeclaredProcessor
from falkirk.errors import DefinitionError
from falkirk.errors.location import caller
from falkirk.plan.batch import STAMP_TYPE
from falkirk.platform.local_data import LocalData
from falkirk.steps.batch.call import calling
from falkirk.steps.batch.in_epoch import InEpoch
from falkirk.steps.batch.replay import replay
from falkirk.steps.batch.times import COMPLETE, marks_after, sort
from falkirk.steps.dataframes.names import STAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "user STRING, n INT, at TIMESTAMP"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

Body = Callable[..., "DataFrame"]
Event = dict[str, Any]


class Epochs:
    """Calls one body for successive epochs, each with the state of the former one."""

    def __init__(self, spark: "SparkSession", folder: Path, body: Body) -> None:
        self._spark, self._folder, self._body = spark, folder, body
        self._state: dict[str, DataFrame] = {}
        self._numbers = itertools.count()
        self.letters: list[dict[str, Any]] = []

    def run(self, *inputs: list[Event], ends: datetime | None = None) -> list[dict[str, Any]]:
        """Run one epoch and return its rows."""
        number = next(self._numbers)
        places = (LocalData(self._folder / f"{number}-{i}") for i in itertools.count())
        call = InEpoch(fk.EpochContext(number=number, ends=ends), self._spark, self._state, lambda: next(places))
        with calling(call):
            rows = self._body(*[self._frame(events) for events in inputs])
        found = [row.asDict(recursive=True) for row in rows.collect()]
        self.letters += [json.loads(r["value"]) for letters in call.letters for r in letters.collect()]
        self._state = {}
        for slot, kept in call.kept.items():
            kept.write.parquet(str(self._folder / f"{number}-{slot}"))
            self._state[slot] = self._spark.read.schema(kept.schema).parquet(str(self._folder / f"{number}-{slot}"))
        call.clean()
        return found

    def kept(self, slot: str) -> list[dict[str, Any]]:
        """Return the current state of a slot."""
        return [row.asDict(recursive=True) for row in self._state[slot].collect()]

    def _frame(self, events: list[Event]) -> "DataFrame":
        rows = self._spark.createDataFrame(events, f"{EVENTS}, stamp {STAMP_TYPE.simpleString()}")
        return rows.coalesce(2)  # by default each row would be a task


def event(offset: int, user: str, n: int, *, minutes: float = 0.0) -> Event:
    stamp = {"source": "events", "partition": 0, "offset": offset, "row": 0}
    return {"user": user, "n": n, "at": BEGAN + timedelta(minutes=minutes), "stamp": stamp}


def cuts(events: list[Event], at: list[int]) -> Iterator[list[Event]]:
    """Yield the events in epochs that end at these places; within an epoch rows are in random order."""
    for first, last in itertools.pairwise([0, *at, len(events)]):
        yield random.Random(first).sample(events[first:last], last - first)


def chain(row: Any, state: Any) -> tuple[Any, Any]:
    """Return a result that depends on all former rows of its key, in order. 0 forgets the key, negatives fail."""
    if row.n == 0:
        return None, None
    if row.n < 0:
        raise ValueError(f"{row.n} is negative")
    before = state.chain if state is not None else 0
    after = (before * 31 + row.n) % 1_000_003
    return {"user": row.user, "chain": after}, {"chain": after}


def chained(events: "DataFrame") -> "DataFrame":
    return fk.stateful(events, chain, key="user", state="chain LONG", returns="user STRING, chain LONG")


def expected(events: list[Event]) -> list[tuple[str, int]]:
    state: dict[str, int] = {}
    found = []
    for e in events:
        if e["n"] == 0:
            state.pop(e["user"], None)
        elif e["n"] > 0:
            state[e["user"]] = (state.get(e["user"], 0) * 31 + e["n"]) % 1_000_003
            found.append((e["user"], state[e["user"]]))
    return sorted(found)


def test_a_state_sees_its_rows_in_order_wherever_epochs_are_cut(spark: "SparkSession", tmp_path: Path) -> None:
    rng = random.Random(7)
    events = [event(i, f"u{rng.randrange(5)}", rng.choice([-1, 0, 1, 2, 3, 4, 5])) for i in range(120)]
    for at in ([], sorted(rng.sample(range(120), 3))):
        epochs = Epochs(spark, tmp_path / str(len(at)), chained)
        found = [row for part in cuts(events, at) for row in epochs.run(part)]
        assert sorted((r["user"], r["chain"]) for r in found) == expected(events), at
        bad = [json.loads(letter["value"])["n"] for letter in epochs.letters]
        assert len(bad) == sum(e["n"] < 0 for e in events)


def test_a_key_that_is_no_number_is_one_key(spark: "SparkSession", tmp_path: Path) -> None:
    """NaN does not equal itself in Python. In Spark it is one key, and so is zero with either sign."""
    floats = [float("nan"), 1.0, 0.0, -0.0]

    def seen(row: Any, state: Any) -> tuple[Any, Any]:
        after = {"seen": (state.seen if state else 0) + 1}
        return {"x": row.x, **after}, after

    def counted(events: "DataFrame") -> "DataFrame":
        x = F.element_at(F.array(*map(F.lit, floats)), F.col("n") + 1)
        return fk.stateful(events.withColumn("x", x), seen, key="x", state="seen LONG", returns="x DOUBLE, seen LONG")

    epochs = Epochs(spark, tmp_path, counted)
    for epoch in range(2):
        found = epochs.run([event(5 * epoch + i, "u", i % 4) for i in (0, 1, 2, 3, 4)])
        by_key = Counter(str(abs(row["x"])) for row in found)
        assert by_key == {"nan": 2, "1.0": 1, "0.0": 2}
        assert max(row["seen"] for row in found if row["x"] != row["x"]) == 2 * (epoch + 1)
        assert max(row["seen"] for row in found if row["x"] == 0) == 2 * (epoch + 1)
        (slot,) = epochs._state
        assert len(epochs.kept(slot)) == 3


def test_without_an_order_of_their_own_rows_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    def unordered(events: "DataFrame") -> "DataFrame":
        return chained(events.drop("stamp"))

    with pytest.raises(DefinitionError) as caught:
        Epochs(spark, tmp_path, unordered).run([event(0, "a", 1)])
    assert caught.value.condition == "STAMP_MISSING"
    with pytest.raises(DefinitionError) as caught:
        fk.current_epoch()
    assert caught.value.condition == "OUTSIDE_OF_BATCH"


def test_a_row_that_fails_is_a_dead_letter_with_the_traceback(spark: "SparkSession", tmp_path: Path) -> None:
    def halves(row: Any) -> Any:
        if row.n == 1:
            return {"half": "not a number"}  # the wrong type
        if row.n == 2:
            return {"third": 1}  # no such column
        return [{"half": 12 / row.n}, {"half": None}] if row.n else [{"half": 1 / row.n}]

    def body(events: "DataFrame") -> "DataFrame":
        return fk.map_rows(events, halves, returns="half DOUBLE")

    epochs = Epochs(spark, tmp_path, body)
    found = epochs.run([event(i, "a", i) for i in range(5)])
    assert sorted(r["half"] or 0 for r in found) == [0, 0, 3, 4]
    by_row = {json.loads(letter["value"])["n"]: letter for letter in epochs.letters}
    assert sorted(by_row) == [0, 1, 2]
    assert "ZeroDivisionError" in by_row[0]["reason"]
    assert "1 / row.n" in by_row[0]["traceback"]
    assert "third" in by_row[2]["reason"]


def test_a_row_that_fails_may_fail_its_epoch(spark: "SparkSession", tmp_path: Path) -> None:
    def body(events: "DataFrame") -> "DataFrame":
        return fk.map_rows(events, lambda row: {"x": 1 // row.n}, returns="x LONG", poison="fail")

    with pytest.raises(Exception, match="the function failed on") as caught:
        Epochs(spark, tmp_path, body).run([event(0, "someone", 0)])
    assert "someone" in str(caught.value)


def pairs_of(left: list[Event], right: list[Event], within: timedelta | None) -> list[tuple[int, int]]:
    return sorted(
        (a["n"], b["n"])
        for a in left
        for b in right
        if a["user"] == b["user"] and (within is None or abs(a["at"] - b["at"]) <= within)
    )


@pytest.mark.parametrize("minutes", [None, 5])
def test_every_pair_meets_once_wherever_epochs_are_cut(
    spark: "SparkSession", tmp_path: Path, minutes: int | None
) -> None:
    """Epochs are ten minutes of event time. Only rows that can't make a pair any more are forgotten."""
    rng = random.Random(3)
    sides = [
        [event(i, f"u{rng.randrange(3)}", side * 1000 + i, minutes=rng.uniform(0, 40)) for i in range(25)]
        for side in (0, 1)
    ]
    within = None if minutes is None else timedelta(minutes=minutes)

    def body(left: "DataFrame", right: "DataFrame") -> "DataFrame":
        if minutes is None:
            return fk.join(left.drop("stamp"), right.drop("stamp"), "user")
        return fk.join(left.drop("stamp"), right.drop("stamp"), "user", time="at", within=minutes * 60)

    epochs, found = Epochs(spark, tmp_path, body), []
    for begins in range(0, 40, 10):
        ends = BEGAN + timedelta(minutes=begins + 10)
        parts = [[e for e in side if ends - timedelta(minutes=10) <= e["at"] < ends] for side in sides]
        found += [(r["n"], r["right_n"]) for r in epochs.run(*parts, ends=ends)]
        if within is not None:
            assert all(r["at"].astimezone(UTC) >= ends - within for r in epochs.kept("join-left-1"))
    assert sorted(found) == pairs_of(sides[0], sides[1], within)
    assert minutes is not None or len(epochs.kept("join-left-1")) == 25


def in_time(event: Event, partition: int) -> Event:
    stamp = {**event["stamp"], "partition": partition}
    return {**event, "stamp": stamp}


def late_by_hand(partitions: list[list[Event]], by: ByTime) -> list[int]:
    """Return the numbers of the events that are not late by the definition. Args: partitions: events, in order."""
    good = []
    for events in partitions:
        newest = -(10**18)
        for e in events:
            at_us = round(e["at"].timestamp() * 1_000_000)
            if (at_us // by.every_us + 1) * by.every_us > newest - by.late_us:
                good.append(e["n"])
            newest = max(newest, at_us)
    return sorted(good)


def test_what_is_late_does_not_depend_on_where_epochs_are_cut(spark: "SparkSession", tmp_path: Path) -> None:
    rng, by = random.Random(11), ByTime(column="at", every_us=60_000_000, late_us=30_000_000)
    partitions = [
        [
            in_time(event(i, "a", 1000 * p + i, minutes=i / 3 - rng.choice([0, 0, 0.4, 3])), p)
            for i in range(40)
        ]
        for p in (0, 1)
    ]  # fmt: skip
    for portions in ([40], [7, 8, 25]):
        marks: dict[str, int] = {}
        begun, found, closed = 0, [], 0
        for number, size in enumerate(portions):
            rows = [e for events in partitions for e in events[begun : begun + size]]
            begun += size
            places = (LocalData(tmp_path / f"{len(portions)}-{number}-{i}") for i in itertools.count())
            epoch = fk.EpochContext(number=number, decided_at=BEGAN + timedelta(days=1))
            call = InEpoch(epoch, spark, {}, lambda places=places: next(places), marks)
            with calling(call):
                mixed = [{**{k: v for k, v in e.items() if k != "stamp"}, STAMP: e["stamp"]} for e in rows]
                schema = f"{EVENTS}, {STAMP} {STAMP_TYPE.simpleString()}"
                frame = spark.createDataFrame(rng.sample(mixed, len(mixed)), schema).coalesce(2)
                kept = [r.asDict(recursive=True) for r in sort(frame, by, "r", "t").collect()]
            assert all((r[SLICE] + 1) * by.every_us > closed for r in kept), "a slice was complete, and grew"
            newest: dict[str, int] = {}
            for r in kept:
                p, at_us = str(r[STAMP]["partition"]), round(r["at"].timestamp() * 1_000_000)
                newest[p] = max(newest.get(p, at_us), at_us)
            marks = marks_after(marks, newest, by)
            closed = marks[COMPLETE]
            found += [r["n"] for r in kept]
            letters = [json.loads(r["value"]) for each in call.letters for r in each.collect()]
            assert {letter["reason"] for letter in letters} <= {"late"}
        assert sorted(found) == late_by_hand(partitions, by), portions
        assert len(found) < 80


def test_groups_of_rows_are_complete_when_they_are_full(spark: "SparkSession", tmp_path: Path) -> None:
    rng = random.Random(5)
    events = [event(i, f"u{rng.randrange(3)}", i) for i in range(50)]

    def body(events: "DataFrame") -> "DataFrame":
        return fk.counted(events, 4, key="user").select("user", "n", "group")

    epochs = Epochs(spark, tmp_path, body)
    found = sorted((r["user"], r["group"], r["n"]) for part in cuts(events, [3, 30]) for r in epochs.run(part))
    expected = []
    for user in {e["user"] for e in events}:
        mine = [e["n"] for e in events if e["user"] == user]
        expected += [(user, i // 4, n) for i, n in enumerate(mine) if i // 4 < len(mine) // 4]
    assert found == sorted(expected)


def test_recorded_steps_do_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    """The recorded steps of a stream are replayed on DataFrames: plain steps and a state, and a join of two streams."""
    rng = random.Random(9)
    events = [event(i, f"u{rng.randrange(3)}", rng.randrange(1, 9)) for i in range(30)]

    def chained(events: fk.Stream) -> fk.Stream:
        big = events.where("n > 2").withColumnRenamed("n", "m").withColumnRenamed("m", "n")
        return big.stateful(chain, key="user", state="chain LONG", returns="user STRING, chain LONG").where("chain > 0")

    def joined(left: fk.Stream, right: fk.Stream) -> fk.Stream:
        return left.join(right.where("n > 4"), "user").select("n", "right_n")

    def replayed(body: Callable[..., fk.Stream]) -> Body:
        names = list(inspect.signature(body).parameters)
        processor = DeclaredProcessor(name="p", body=body, reads=tuple(names), policy=fk.Eager(), where=caller())

        def run(*given: "DataFrame") -> "DataFrame":
            hidden = [frame.withColumnRenamed("stamp", STAMP) for frame in given]
            node = body(*[fk.Stream(ProcessorNode(name=n)) for n in names]).node
            return replay(node, dict(zip(names, hidden, strict=True)), processor)

        return run

    epochs = Epochs(spark, tmp_path / "chained", replayed(chained))
    found = [row for part in cuts(events, [11]) for row in epochs.run(part)]
    assert sorted((r["user"], r["chain"]) for r in found) == expected([e for e in events if e["n"] > 2])
    epochs = Epochs(spark, tmp_path / "joined", replayed(joined))
    pairs = epochs.run(events[:20], events[20:25]) + epochs.run([], events[25:])
    assert sorted((r["n"], r["right_n"]) for r in pairs) == pairs_of(
        events[:20], [e for e in events[20:] if e["n"] > 4], None
    )


def test_times_go_through_a_function_and_its_state(spark: "SparkSession", tmp_path: Path) -> None:
    """Also within a struct or a list. A function gets times in UTC."""

    def since(row: Any, state: Any) -> tuple[Any, Any]:
        known = [*(state.known if state is not None else []), row.at]
        return {"at": row.at, "first": {"at": known[0]}, "all": known}, {"known": known}

    returns = "at TIMESTAMP, first STRUCT<at: TIMESTAMP>, all ARRAY<TIMESTAMP>"
    epochs = Epochs(
        spark, tmp_path, lambda e: fk.stateful(e, since, key="user", state="known ARRAY<TIMESTAMP>", returns=returns)
    )
    events = [event(n, "ann", n, minutes=n) for n in range(4)]
    found = epochs.run(events[:2]) + epochs.run(events[2:])
    assert epochs.letters == []
    local = [e["at"].astimezone().replace(tzinfo=None) for e in events]
    assert sorted(found, key=lambda row: row["at"]) == [
        {"at": at, "first": {"at": local[0]}, "all": local[: n + 1]} for n, at in enumerate(local)
    ]
    again = Epochs(spark, tmp_path / "map", lambda e: fk.map_rows(e, lambda r: {"at": r.at}, returns="at TIMESTAMP"))
    (tmp_path / "map").mkdir()
    assert sorted(row["at"] for row in again.run(events)) == local
