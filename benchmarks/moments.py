"""Moments: jobs whose results wait for a moment of event time or of the clock, and unions.

A result that waits for event time leaves when a later record moves the time. So the latency of a result is measured
from that record. It can be computed in advance: each record has in its field `n` the number of the record that causes
its result. The times of records are in order, each 1/rate after the one before.
"""

import json
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

from benchmarks.job import BEGAN, PARTITIONS, Job, Records, operator
from falkirk.declare.asserting import deterministic
from falkirk.declare.grouped import latest_value
from falkirk.declare.stream import Stream

#: The delay of `withWatermark`, the length of windows, and how far timers are ahead, in microseconds.
DELAY_US, WINDOW_US, AHEAD_US = 100_000, 100_000, 200_000
TICKS_S = 0.1
#: A number that no record has: nothing causes a result.
_NOTHING = "nothing"


def partition_of(word: str) -> int:
    """Return the partition into which the client's producer puts a key."""
    return zlib.crc32(word.encode()) % PARTITIONS


def reached(
    times: Iterable[tuple[int, int]], deadlines: Iterable[tuple[int, int]], *, strictly: bool
) -> Mapping[int, int]:
    """Return, for the number of each deadline that is reached, the number of the first record that reaches it.

    Args: times: numbers of records, with the time after each, which never goes back. deadlines: numbers, with times in
        order. strictly: a deadline is reached when the time is later, and not when it is equal.
    """
    found, waiting = dict[int, int](), list(deadlines)[::-1]
    for number, time in times:
        while waiting and (waiting[-1][1] < time or (waiting[-1][1] == time and not strictly)):
            found[waiting.pop()[0]] = number
    return found


def _least(records: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the number of each record with the least watermark of all partitions. Args: records: with partition and
    time."""
    greatest = dict[int, int]()
    for number, partition, time in records:
        greatest[partition] = time
        if len(greatest) == PARTITIONS:
            yield number, min(greatest.values()) - DELAY_US


def _time_us(number: int, rate: float) -> int:
    return round(1_000_000 * number / rate)


def _made(words: list[str], rate: float, causes: Mapping[int, int], due: Mapping[int, int]) -> Records:
    """Return records. Args: causes: the record that causes a result of each. due: how many results each causes."""
    found = []
    for number, word in enumerate(words):
        at = BEGAN + timedelta(microseconds=_time_us(number, rate))
        value = {"word": word, "n": str(causes.get(number, _NOTHING)), "at": at.isoformat()}
        found.append((str(number), word, json.dumps(value), due.get(number, 0)))
    return found


def _drawn(number: int, words: int = 40) -> list[str]:
    chosen = random.Random(1)
    return [f"w{chosen.randrange(words)}" for _ in range(number)]


def _different(number: int) -> list[str]:
    """Return a word for each record. The next record of a word would replace its timer."""
    return [f"w{n}" for n in range(number)]


def _by_partition(words: list[str]) -> Iterator[list[int]]:
    found = defaultdict[int, list[int]](list)
    for number, word in enumerate(words):
        found[partition_of(word)].append(number)
    yield from found.values()


def window_records(number: int, rate: float) -> Records:
    """Return records for windows with one final result, which the time of the key's partition closes."""
    words, causes, due = _drawn(number), dict[int, int](), Counter[int]()
    for mine in _by_partition(words):
        times = [(n, _time_us(n, rate)) for n in mine]
        ends = [(n, (time // WINDOW_US + 1) * WINDOW_US) for n, time in times]
        causes |= reached([(n, time - DELAY_US) for n, time in times], ends, strictly=False)
        windows = {(end, words[n]): causes[n] for n, end in ends if n in causes}
        due.update(windows.values())
    return _made(words, rate, causes, due)


def timer_records(number: int, rate: float) -> Records:
    """Return records whose timers the time of the key's partition reaches."""
    words, causes = _different(number), dict[int, int]()
    for mine in _by_partition(words):
        times = [(n, _time_us(n, rate)) for n in mine]
        timers = [(n, time + AHEAD_US) for n, time in times]
        causes |= reached([(n, time - DELAY_US) for n, time in times], timers, strictly=False)
    return _made(words, rate, causes, Counter(causes.values()))


def ordered_records(number: int, rate: float) -> Records:
    """Return records that leave when the times of all partitions have passed them."""
    words = _drawn(number)
    records = [(n, partition_of(word), _time_us(n, rate)) for n, word in enumerate(words)]
    causes = reached(_least(records), [(n, time) for n, _, time in records], strictly=True)
    return _made(words, rate, causes, Counter(causes.values()))


def versioned_records(number: int, rate: float) -> Records:
    """Return records in turns: one that is joined, and a version of the table, whose times the first ones wait for."""
    words = _drawn(number)
    records = [(n, partition_of(word), _time_us(n, rate)) for n, word in enumerate(words)]
    joined = [(n, time) for n, _, time in records[::2]]
    causes = reached(_least(records[1::2]), joined, strictly=True)
    return _made(words, rate, causes, Counter(causes.values()))


def own_records(number: int, rate: float) -> Records:
    """Return records that cause one result each."""
    own = {n: n for n in range(number)}
    return _made(_drawn(number), rate, own, dict.fromkeys(own, 1))


def clocked_records(number: int, rate: float) -> Records:
    """Return records whose timers a clock reaches."""
    own = {n: n for n in range(number)}
    return _made(_different(number), rate, own, dict.fromkeys(own, 1))


def _timed(records: Stream) -> Stream:
    return records.withWatermark("at", f"{DELAY_US // 1000} ms")


def _final_windows(records: Stream) -> Stream:
    grouped = _timed(records).groupBy(F.window("at", f"{WINDOW_US} microseconds"), "word")
    return grouped.agg(F.count("*").alias("version"), latest_value("n"))


def _united(left: Stream, right: Stream) -> Stream:
    return left.union(right).select("word", "n")


def _united_count(left: Stream, right: Stream) -> Stream:
    return left.union(right).groupBy("word").agg(F.count("*").alias("version"), latest_value("n"))


def _as_of(records: Stream, table: Stream) -> Stream:
    return _timed(records).join_asof(_timed(table), "word", how="left").select("word", "n", "right_n")


@deterministic
def _chained(row: Any, state: Any) -> tuple[dict[str, Any], dict[str, int]]:
    version = 1 if state is None else state.version + 1
    return {"word": row.word, "version": version, "n": row.n}, {"version": version}


def _in_order(records: Stream) -> Stream:
    returns = "word STRING, version LONG, n STRING"
    return _timed(records).stateful(_chained, key="word", state="version LONG", returns=returns, order="at")


@deterministic
def _set(row: Any, state: Any) -> tuple[None, dict[str, str], datetime]:
    return None, {"n": row.n}, row.at + timedelta(microseconds=AHEAD_US)


def _set_by_the_clock(row: Any, state: Any) -> tuple[None, dict[str, str], datetime]:
    return None, {"n": row.n}, datetime.now(UTC) + timedelta(microseconds=AHEAD_US)


@deterministic
def _fired(key: Any, time: Any, state: Any) -> tuple[dict[str, str], None]:
    return {"word": key.word, "n": state.n}, None


def _timers(records: Stream) -> Stream:
    return _timed(records).stateful(
        _set, key="word", state="n STRING", returns="word STRING, n STRING", on_timer=_fired
    )


def _clock_timers(records: Stream, clock: Stream) -> Stream:
    return records.withClock(clock).stateful(
        _set_by_the_clock, key="word", state="n STRING", returns="word STRING, n STRING", on_timer=_fired
    )


def _of_two(name: str, title: str, body: Any, records: Any) -> Job:
    return replace(operator(name, title, body, sources=2), records=records, has_twins=False)


MOMENTS = (
    replace(operator("final_windows", "windows, final results", _final_windows), records=window_records),
    _of_two("union", "union of two topics", _united, own_records),
    _of_two("union_count", "count over a union", _united_count, own_records),
    _of_two("asof", "as-of join", _as_of, versioned_records),
    replace(operator("timers", "timers by event time", _timers), records=timer_records),
    replace(
        operator("clock_timers", "timers by the clock", _clock_timers), records=clocked_records, ticks_s=TICKS_S,
        due_s=AHEAD_US / 1_000_000, has_twins=False,
    ),
    replace(operator("in_order", "in the order of times", _in_order), records=ordered_records, has_twins=False),
)  # fmt: skip
