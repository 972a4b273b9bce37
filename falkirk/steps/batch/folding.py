"""Folding: runs a user's function on the rows and the state of each key, in Spark's Python workers.

This module is sent with the function, as `falkirk/steps/batch/python.py` is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import Row

from falkirk.steps.batch.python import RESULT_KIND, STATE_KIND, RowCollector, plain_rows, refuse_unreadable
from falkirk.steps.dataframes.user_function import check_next, parts_of, results_of, timer_time

#: The age of a row and of a state, a state's timer, and the watermark at the end of the epoch: see
#: `falkirk/steps/dataframes/names.py` and `falkirk/steps/batch/ages.py`, which are not sent.
_AGE, _TIMER, _END = "__falkirk_age", "__falkirk_timer", "__falkirk_end"
_ORIGINS = "__falkirk_origins"


@dataclass(frozen=True, kw_only=True)
class StateRules:
    """When states expire or have timers, which needs their ages.

    Args: expires_us: how far the watermark must be past a state's newest row; None: states do not expire. on_timer: the
        function that timers call; None: there are none. zone: of the times that it gets.
    """

    expires_us: int | None
    on_timer: Callable[..., object] | None
    zone: str


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The columns of a result that the function does not give.

    Args: own: the names of those that it gives. include_key: the columns of the key come before them. stamp: the name
        of a column after them, with the stamp of the row, and the name of its sub-index; None: there is none. traces: a
        result and a state have the stamps of the rows since the state was last empty, in `_ORIGINS`.
    """

    own: tuple[str, ...]
    include_key: bool
    stamp: tuple[str, str] | None
    traces: bool = False


def folding(
    function: Callable[[Row, Row | None], object],
    names: list[str],
    keys: list[str],
    states: list[str],
    rules: StateRules | None,
    beside: Beside | None,
    sender: Callable[[], RowCollector],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task's function for `stateful`. Rows arrive key by key: first the key's state, then its rows in order.

    Args: names, keys, states: the columns of rows, of keys, and of states without keys. rules: None: states have no
        age. Otherwise rows and states have `_AGE` and `_END`, and with timers states have `_TIMER`. beside: None:
        the function gives all columns of a result.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = sender()
        make, make_state = Row(*names), Row(*states)

        def new(key: tuple[Any, ...]) -> FoldedKey:
            return FoldedKey(
                function=function, rules=rules, out=out, keys=keys, key=key, make=make, make_state=make_state,
                beside=beside,
            )  # fmt: skip

        now: FoldedKey | None = None
        for batch in batches:
            for each, error in plain_rows(batch):
                if error is not None:
                    refuse_unreadable(out, each, error)
                    continue
                key = tuple(each["key"].values())
                if now is None or (key != now.key and repr(key) != repr(now.key)):  # NaN does not equal itself
                    if now is not None:
                        now.end()
                    now = new(key)
                now.add(each)
                if out.ready():
                    yield out.batch()
        if now is not None:
            now.end()
        yield out.batch()

    return work


@dataclass(kw_only=True)
class FoldedKey:
    """The state of a key in an epoch, its newest row's age, its timer in microseconds, and the end of the epoch.

    A timer that is due when a row sets it fires before the next row of its key, or at the end. Results have no order
    beyond that in an epoch.
    """

    function: Callable[[Row, Row | None], object]
    rules: StateRules | None
    out: RowCollector
    keys: list[str]
    key: tuple[Any, ...]
    make: Row
    make_state: Row
    beside: Beside | None
    state: Row | None = None
    age: Mapping[str, Any] | None = None
    timer: int | None = None
    ends: int | None = None
    places: tuple[Any, ...] = ()

    def add(self, each: Mapping[str, Any]) -> None:
        """Take the state that the key had, or a row."""
        self.ends = each.get(_END)
        if each["row"] is None:
            self.state, self.age = self.make_state(*each["state"].values()), each.get(_AGE)
            self.timer = each.get(_TIMER)
            self.places = tuple(each.get(_ORIGINS) or ())
            return
        if self.rules is not None:
            self.move(each[_AGE]["watermark"])
        if self.beside is not None and self.beside.traces:
            self.places = (*(() if self.state is None else self.places), each["order"])

        def call() -> object:
            return self.function(self.make(*each["row"].values()), self.state)

        if self._call(call, each["row"], each["order"]) and self.rules is not None:
            self.age = None if self.state is None else max(each[_AGE], self.age or each[_AGE], key=lambda a: a["time"])

    def end(self) -> None:
        """End the epoch, and keep the state."""
        self.move(self.ends)
        if self.state is None:
            return
        ages = {} if self.age is None else {_AGE: self.age}
        timers = {} if self.timer is None else {_TIMER: self.timer}
        places = {_ORIGINS: self.places} if self.beside is not None and self.beside.traces else {}
        self.out.add(STATE_KIND, {**self._named(), **self.state.asDict(), **ages, **timers, **places})

    def _named(self) -> dict[str, Any]:
        return dict(zip(self.keys, self.key, strict=True))

    def _result(self, value: object, stamp: object, place: int) -> dict[str, Any]:
        """Return a result as plain values. Args: stamp, place: of its row, and among the results of the row.

        Raises: as `RowCollector.check`.
        """
        beside = self.beside
        if beside is None:
            return self.out.check(RESULT_KIND, value)
        found = self.out.check(RESULT_KIND, value, beside.own)
        if beside.include_key:  # a key is -0.0 if its first row has that; in a live region, it is always 0.0
            found |= {n: v + 0.0 if isinstance(v, float) else v for n, v in self._named().items()}
        if beside.stamp is not None:
            assert isinstance(stamp, Mapping), "a row has one"
            found[beside.stamp[0]] = {**stamp, beside.stamp[1]: place}
        return found | ({_ORIGINS: self.places} if beside.traces else {})

    def move(self, watermark: int | None) -> None:
        """Let the timer fire, or the state expire, as far as they are due."""
        if self.rules is None or watermark is None:
            return
        while self.state is not None:
            if self.timer is not None:
                if self.timer > watermark:
                    return
                self._fire()
                continue
            after_us = self.rules.expires_us
            if after_us is None or self.age is None or self.age["time"] + after_us > watermark:
                return
            self.state, self.age = None, None

    def _fire(self) -> None:
        assert self.rules is not None
        assert self.rules.on_timer is not None
        assert self.timer is not None, "it is due"
        on_timer, fired, self.timer = self.rules.on_timer, self.timer, None
        time = timer_time(fired, ZoneInfo(self.rules.zone))

        def call() -> object:
            returned = on_timer(Row(*self.keys)(*self.key), time, self.state)
            check_next(parts_of(returned, timers=True)[2], fired)
            return returned

        self._call(call, {"key": self._named(), "timer": time}, {})

    def _call(self, call: Callable[[], object], row: Mapping[str, Any], stamp: object) -> bool:
        """Call a function, and return whether it did not fail. If it fails, the state stays, and a row's timer."""
        try:
            timers = self.rules is not None and self.rules.on_timer is not None
            results, after, timer = parts_of(call(), timers=timers)
            found = [self._result(r, stamp, place) for place, r in enumerate(results_of(results))]
            if after is not None:
                values = after.asDict() if isinstance(after, Row) else after
                kept = self.out.check(STATE_KIND, {**self._named(), **values})
                after = self.make_state(*[kept.get(name) for name in self.make_state])
        except Exception:
            self.out.refuse(row, stamp)
            return False
        self.state = after
        if timer:
            self.timer = timer[0]
        if after is None:
            self.age, self.timer = None, None
        for result in found:
            self.out.add(RESULT_KIND, result)
        return True
