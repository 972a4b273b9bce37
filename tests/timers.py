"""States that expire and have timers: two functions for `stateful`, and a model that calls them.

The model is plain Python: it reads each partition's records in their order. Before each record it looks at all keys
for due timers and expired states. Either mechanism can be switched off in it, to know what a fault would give.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row

import falkirk as fk
from falkirk.declare.watermark import Watermark
from falkirk.steps.live import event_time
from falkirk.steps.live.python_steps import PythonStep
from tests.duplicates import BEGAN, DELAY_S, HOSTILE

EXPIRES_S = 20
STATE = "count_ INT, fired INT"
RETURNS = "id STRING, n INT, count INT, fired INT, timer TIMESTAMP"
#: A result: the key, the record's number, the counts, and the seconds of the timer. None: it is of the other kind.
Result = tuple[str, int | None, int, int, int | None]
#: A dead letter: why, and the record's number or the key and the seconds of the timer.
Letter = tuple[str, int | str, int]


@fk.deterministic
def counted(row: Row, state: Row | None) -> tuple[Any, ...]:
    """Count the records of a key. The record's number says what becomes of its timer."""
    if row.n % 11 == 3:
        raise ValueError(f"no {row.n}")
    count, fired = (1, 0) if state is None else (state.count_ + 1, state.fired)
    result = {"id": row.id, "n": row.n, "count": count, "fired": fired, "timer": None}
    after = {"count_": count, "fired": fired}
    match row.n % 8:
        case 0:
            return result, None
        case 1 | 2:
            return result, after
        case 3:
            return result, after, None
        case 4:  # it has passed: no record that is late gets here
            return result, after, row.at - timedelta(seconds=DELAY_S + 5)
        case _:
            return [result] * 2, after, row.at + timedelta(seconds=row.n % 5 * 6)


@fk.deterministic
def reminded(key: Row, time: datetime, state: Row) -> tuple[Any, ...]:
    """Count the timers of a key. Their number says what comes next."""
    if time.second % 10 == 9:
        raise ValueError(f"no {time.second}")
    fired = state.fired + 1
    result = {"id": key.id, "n": None, "count": state.count_, "fired": fired, "timer": time}
    after = {"count_": state.count_, "fired": fired}
    match fired % 4:
        case 0:
            return result, None
        case 1:
            return result, after, time + timedelta(seconds=4)
        case 2:
            return result, after
        case _:
            return (), after, time + timedelta(seconds=7)


def remembered(clicks: fk.Stream, *, timeout: str = "1 minute", is_chain: bool = False) -> fk.Stream:
    """Return the results of both functions. Records that a step leaves out have moved the time.

    Args: is_chain: before them is a `dropDuplicates`, which drops nothing but late records: all numbers are different.
    """
    timed = clicks.withWatermark("at", f"{DELAY_S} seconds").where("n % 7 <> 0")
    if is_chain:
        timed = timed.dropDuplicates(["id", "n"])
    return timed.stateful(
        counted, key="id", state=STATE, returns=RETURNS, expires=f"{EXPIRES_S} seconds",
        on_timer=reminded, timeout=timeout,
    )  # fmt: skip


@fk.deterministic
def noted(row: Row, state: Row | None) -> tuple[Any, ...]:
    """Count the records of a key. A timer by the clock comes the record's number of seconds after `BEGAN`."""
    count = 1 if state is None else state.count_ + 1
    result = {"id": row.id, "n": row.n, "count": count, "fired": 0, "timer": None}
    return result, {"count_": count}, BEGAN + timedelta(seconds=row.n)


@fk.deterministic
def woken(key: Row, time: datetime, state: Row) -> tuple[Any, ...]:
    """Tell the count at the time of a timer."""
    return {"id": key.id, "n": None, "count": state.count_, "fired": 1, "timer": time}, state


def clocked(clicks: fk.Stream, clock: fk.Stream) -> fk.Stream:
    """Return the results of both functions, with timers by the clock."""
    return clicks.withClock(clock).stateful(noted, key="id", state="count_ INT", returns=RETURNS, on_timer=woken)


def clocked_results(parts: Iterable[Iterable[Mapping[str, Any]]]) -> Counter[Result]:
    """Return the expected results of `clocked`. Args: parts: all timers of each part fire before the next part."""
    found, counts = Counter[Result](), Counter[str]()
    for records in parts:
        timers: dict[str, int] = {}
        for record in records:
            name, n = record["id"], record["n"]
            counts[name] += 1
            timers[name] = n
            found[name, n, counts[name], 0, None] += 1
        for name, n in timers.items():
            found[name, None, counts[name], 1, int((BEGAN + timedelta(seconds=n)).timestamp())] += 1
    return found


#: In a history: the numbers of records and of timers in a result.
Counts = tuple[int, int]


@fk.deterministic
def ticked_row(row: Row, state: Row | None) -> tuple[Any, ...]:
    """Count the records of a key, and set a timer that is up to a second after the record's own timestamp."""
    after = {"count_": 1 if state is None else state.count_ + 1, "fired": 0 if state is None else state.fired}
    return {"id": row.id, "n": row.n, **after}, after, row.timestamp + timedelta(seconds=0.2 + row.n % 5 * 0.2)


@fk.deterministic
def ticked_timer(key: Row, time: datetime, state: Row) -> tuple[Any, ...]:
    """Count the timers of a key."""
    after = {"count_": state.count_, "fired": state.fired + 1}
    return {"id": key.id, "n": None, **after}, after


def ticked(clicks: fk.Stream, clock: fk.Stream) -> fk.Stream:
    """Return the results of both functions, with timers by the clock. Each result has both counts of its key."""
    return clicks.withClock(clock).stateful(
        ticked_row, key="id", state=STATE, returns="id STRING, n INT, count_ INT, fired INT", on_timer=ticked_timer
    )


def histories(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Counts]]:
    """Return the counts of each key in the results of `ticked`, in their order."""
    found = defaultdict(list)
    for row in rows:
        found[row["id"]].append((row["count_"], row["fired"]))
    return found


def broken(history: list[Counts]) -> list[tuple[Counts, Counts]]:
    """Return the neighbours that no record and no timer alone lies between."""
    steps = zip([(0, 0), *history], history, strict=False)
    return [(one, other) for one, other in steps if (other[0] - one[0], other[1] - one[1]) not in ((1, 0), (0, 1))]


def is_told(found: Mapping[str, list[Counts]], records: Mapping[str, int], *, fired: bool = True) -> bool:
    """Return whether all records of each key are counted, and its last timer after them. Args: fired: ask for that."""
    last = {name: max(mine) for name, mine in found.items()}
    have_fired = all((count, number - 1) in found[name] for name, (count, number) in last.items())
    return {name: count for name, (count, _) in last.items()} == records and (have_fired or not fired)


def without(mechanism: str) -> Callable[[PythonStep, Watermark], Any]:
    """Return a `PythonStep.state_times` with a planted fault: states never expire, or timers never fire.

    Args: mechanism: "expiry" or "timers".
    """

    def planted(step: PythonStep, watermark: Watermark) -> Any:
        session: Any = step.data.sparkSession
        after_us = -1 if mechanism == "expiry" else step.options["expiry"].after_us
        made = session._jvm.org.falkirk.StateTimes
        return made(event_time.column_names(step.data), watermark.delay_us, after_us, mechanism != "timers")

    return planted


@dataclass(kw_only=True)
class _Held:
    """A key in the model: its state, the time of its newest record, and its timer."""

    state: Row
    newest: datetime
    timer: datetime | None


@dataclass(kw_only=True)
class Model:
    """The expected results. Args: fault: the mechanism that does not work, see `without`."""

    fault: str = ""
    results: Counter[Result] = field(default_factory=Counter)
    letters: Counter[Letter] = field(default_factory=Counter)
    #: How many states have expired.
    expired: int = 0

    def read(self, partitions: Mapping[int, Iterable[Mapping[str, Any]]]) -> "Model":
        """Read the records of each partition. Returns: this model."""
        for records in partitions.values():
            self._read(records)
        return self

    def _read(self, records: Iterable[Mapping[str, Any]]) -> None:
        greatest: datetime | None = None
        held: dict[str, _Held] = {}
        for record in records:
            n, at = record["n"], record["at"]
            if at is None or at in HOSTILE:
                self.letters["unfit", n, 0] += 1
                continue
            time = datetime.fromisoformat(at)
            greatest = time if greatest is None else max(greatest, time)
            watermark = greatest - timedelta(seconds=DELAY_S)
            self._move(held, watermark)
            if n % 7 == 0:
                continue
            if time < watermark:
                self.letters["late", n, 0] += 1
                continue
            self._take(held, Row("id", "at", "n")(record["id"], time, n), time)
            self._move(held, watermark)

    def _move(self, held: dict[str, _Held], watermark: datetime) -> None:
        """Let timers fire and states expire, in the order of their times."""
        while due := sorted((when, key) for key, each in held.items() if (when := self._due(each)) <= watermark):
            when, key = due[0]
            if held[key].timer is None:
                del held[key]
                self.expired += 1
                continue
            held[key].timer = None
            letter = "timer failed", key, int(when.timestamp())
            self._call(held, key, reminded, (Row("id")(key), when, held[key].state), letter, None)

    def _due(self, each: _Held) -> datetime:
        if each.timer is not None:
            return each.timer
        return (
            each.newest + timedelta(seconds=EXPIRES_S) if self.fault != "expiry" else datetime.max.replace(tzinfo=UTC)
        )

    def _take(self, held: dict[str, _Held], row: Row, time: datetime) -> None:
        before = held.get(row.id)
        arguments = row, None if before is None else before.state
        self._call(held, row.id, counted, arguments, ("row failed", row.n, 0), time)

    def _call(
        self, held: dict[str, _Held], key: str, function: Any, arguments: Any, letter: Letter, time: datetime | None
    ) -> None:
        try:
            results, state, *timer = function(*arguments)
        except ValueError:
            self.letters[letter] += 1
            return
        for result in [results] if isinstance(results, dict) else results:
            self.results[_of(result, result["timer"])] += 1
        if state is None:
            held.pop(key, None)
            return
        kept = Row("count_", "fired")(state["count_"], state["fired"])
        before = held.get(key)
        newest = max(each for each in (time, before and before.newest) if each is not None)
        now = held[key] = _Held(state=kept, newest=newest, timer=before and before.timer)
        if timer and self.fault != "timers":
            now.timer = timer[0]


def ended(partitions: Mapping[int, list[dict[str, Any]]]) -> dict[int, list[dict[str, Any]]]:
    """Return the records of each partition with a last one, by which all timers fire. The steps leave it out."""
    later = (BEGAN + timedelta(hours=1)).isoformat()
    return {p: [*mine, {"id": mine[0]["id"], "at": later, "n": 7 * (10_000 + p)}] for p, mine in partitions.items()}


def _of(row: Mapping[str, Any], timer: datetime | None) -> Result:
    return row["id"], row["n"], row["count"], row["fired"], None if timer is None else int(timer.timestamp())


def results(rows: Iterable[Mapping[str, Any]]) -> Counter[Result]:
    """Return the results in a topic."""
    times = ((row, row.get("timer")) for row in rows)
    return Counter(_of(row, None if at is None else datetime.fromisoformat(at)) for row, at in times)


def letters(rows: Iterable[Mapping[str, Any]]) -> Counter[Letter]:
    """Return the dead letters in a topic."""
    found: Counter[Letter] = Counter()
    for row in rows:
        value = json.loads(row["value"])
        if "timer" in value:
            found["timer failed", value["key"]["id"], int(datetime.fromisoformat(value["timer"]).timestamp())] += 1
        elif row["reason"] == "late":
            found["late", value["n"], 0] += 1
        else:
            found["row failed" if row.get("traceback") else "unfit", value["n"], 0] += 1
    return found
