"""Operators that keep a state: what they return does not depend on where epochs are cut, and a row on which a user's
function fails harms nobody else. On real Spark, without a broker."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.operators.call import calling
from falkirk.operators.in_epoch import InEpoch
from falkirk.plan.batch import STAMP_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "user STRING, n INT, at TIMESTAMP"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

Body = Callable[..., "DataFrame"]
Event = dict[str, Any]


class Epochs:
    """Calls of one body, epoch after epoch, each with what the one before has left."""

    def __init__(self, spark: "SparkSession", folder: Path, body: Body) -> None:
        self._spark, self._folder, self._body = spark, folder, body
        self._state: dict[str, DataFrame] = {}
        self._numbers = itertools.count()
        self.letters: list[dict[str, Any]] = []

    def run(self, *inputs: list[Event], ends: datetime | None = None) -> list[dict[str, Any]]:
        """Run one epoch and return its rows."""
        number = next(self._numbers)
        places = (self._folder / f"{number}-{i}" for i in itertools.count())
        call = InEpoch(fk.Epoch(number=number, ends=ends), self._spark, self._state, lambda: next(places))
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
        """Return what is kept now."""
        return [row.asDict(recursive=True) for row in self._state[slot].collect()]

    def _frame(self, events: list[Event]) -> "DataFrame":
        return self._spark.createDataFrame(events, f"{EVENTS}, stamp {STAMP_TYPE.simpleString()}")


def event(offset: int, user: str, n: int, *, minutes: float = 0.0) -> Event:
    stamp = {"source": "events", "partition": 0, "offset": offset, "row": 0}
    return {"user": user, "n": n, "at": BEGAN + timedelta(minutes=minutes), "stamp": stamp}


def cuts(events: list[Event], at: list[int]) -> Iterator[list[Event]]:
    """Yield the events in epochs that end at these places; within an epoch rows come in no order."""
    for first, last in itertools.pairwise([0, *at, len(events)]):
        yield random.Random(first).sample(events[first:last], last - first)


def chain(row: Any, state: Any) -> tuple[Any, Any]:
    """A result that depends on all that came before it of its key, in order; None forgets, negatives are poison."""
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


def test_without_an_order_of_their_own_rows_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    def unordered(events: "DataFrame") -> "DataFrame":
        return chained(events.drop("stamp"))

    with pytest.raises(DefinitionError) as caught:
        Epochs(spark, tmp_path, unordered).run([event(0, "a", 1)])
    assert caught.value.condition == "STAMP_MISSING"
    with pytest.raises(DefinitionError) as caught:
        fk.epoch()
    assert caught.value.condition == "OUTSIDE_OF_BATCH"


def test_a_row_that_fails_is_a_dead_letter_with_the_traceback(spark: "SparkSession", tmp_path: Path) -> None:
    def halves(row: Any) -> Any:
        if row.n == 1:
            return {"half": "not a number"}  # of the wrong type
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
    """Epochs of ten minutes of event time; what can't meet any more is forgotten, and nothing that still can."""
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
            assert all(r["at"] >= ends - within for r in epochs.kept("join-left-1"))
    assert sorted(found) == pairs_of(*sides, within)
    assert minutes is not None or len(epochs.kept("join-left-1")) == 25
