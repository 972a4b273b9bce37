"""Row calls: the objects that call a user's function for each row of a live region. Row workers run them.

They are pickled for the process, and answer requests that are bytes: a row, and for a function with a state also that.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import types as T

from falkirk.steps.dataframes.user_function import (
    TEXT_MAX,
    Fit,
    check_next,
    parts_of,
    poison_text,
    reason_of,
    results_of,
    row_text,
    timer_time,
    traceback_text,
)
from falkirk.steps.live.row_codec import RowCodec

_SIZE, _TIME = struct.Struct(">i"), struct.Struct(">q")
#: In place of the size of a state: there is none; it is as before.
_NONE, _KEPT = -1, -2
#: In place of the time of a timer: it is as before; there is none.
_KEPT_TIMER, _NO_TIMER = -(2**63), -(2**63) + 1


class RefusedRow(Exception):
    """The user's function failed on a row, and the row must not become a dead letter."""


def answer_of(returns: T.StructType) -> T.StructType:
    """Return the columns of an answer: the results of a row, or the content of its dead letter.

    Args: returns: the columns of a result.
    """
    return T.StructType([
        T.StructField("results", T.ArrayType(returns)), T.StructField("reason", T.StringType()),
        T.StructField("value", T.StringType()), T.StructField("traceback", T.StringType()),
        T.StructField("is_timer", T.BooleanType()),
    ])  # fmt: skip


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Codecs:
    """The parts of a worker that can't be pickled. It has them besides the function."""

    given: RowCodec
    shown: RowCodec
    answers: RowCodec
    fit: Fit
    make: Callable[..., Row]


@dataclass(kw_only=True)
class RowCalls:
    """Calls a user's function for each request, which is a row as bytes. It is pickled without its codecs.

    Args: function: of a row. given: the columns of rows. returns: those of results. zone: of timestamps. fails: see
        `RefusedRow`.
    """

    function: Callable[[Row], object]
    given: T.StructType
    returns: T.StructType
    zone: str
    fails: bool
    _codecs: _Codecs | None = field(default=None, init=False, repr=False)

    def __call__(self, request: bytes) -> bytes:
        """Return the answer to a request. Raises: RefusedRow."""
        return self._answer(lambda codec: codec.decode(request), lambda row: self.function(self._row(row)))

    def _row(self, values: dict[str, Any]) -> Row:
        """Return a row as the user's function gets it."""
        return (self._codecs or self._made()).make(*values.values())

    def _answer(
        self,
        read: Callable[[RowCodec], dict[str, Any]],
        call: Callable[[dict[str, Any]], object],
        after: Callable[[], None] = _nothing,
        *,
        is_timer: bool = False,
    ) -> bytes:
        """Return the answer to a row or a timer. Args: after: is called when the results fit. Raises: RefusedRow."""
        codecs = self._codecs or self._made()
        row = None
        try:
            row = read(codecs.given)
            found = results_of(call(row))
            results = [codecs.fit(each) for each in found]
            answer = {"results": results, "reason": None, "value": None, "traceback": None, "is_timer": None}
            encoded = codecs.answers.encode(answer)
            after()
            return encoded
        except Exception:
            text = traceback_text()
            if row is None:  # it has a value that Python can't represent
                row = read(codecs.shown)
            if self.fails:
                raise RefusedRow(poison_text(row, text)) from None
            letter = {"reason": reason_of(text), "value": row_text(row), "traceback": text[-TEXT_MAX:]}
            return codecs.answers.encode({"results": None, **letter, "is_timer": is_timer})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_codecs": None}

    def _made(self) -> _Codecs:
        zone = ZoneInfo(self.zone)
        self._codecs = _Codecs(
            given=RowCodec(self.given, zone),
            shown=RowCodec(self.given, zone, _beyond),
            answers=RowCodec(answer_of(self.returns), zone),
            fit=Fit("result", self.returns),
            make=Row(*self.given.names),
        )
        return self._codecs


@dataclass(kw_only=True)
class StateCalls(RowCalls):
    """Calls a user's function with each row and the state of its key: PythonState.java has the form of requests.

    Args: function: takes a row and a state. keys: the columns of the key. state: the other columns of states.
    """

    function: Callable[..., object]
    keys: tuple[str, ...]
    state: T.StructType
    _states: tuple[RowCodec, Fit, Callable[..., Row]] | None = field(default=None, init=False, repr=False)

    #: The bytes before a row whose key has no state.
    without_state: ClassVar[bytes] = _SIZE.pack(_NONE)
    _has_timers: ClassVar[bool] = False

    def __call__(self, request: bytes) -> bytes:
        """Return the answer to a request. If the function fails, the state stays. Raises: RefusedRow."""
        codec, _, make = self._states or self._made_states()
        size, rest = _SIZE.unpack_from(request)[0], request[_SIZE.size :]
        before = None if size == _NONE else make(*codec.decode(rest[:size]).values())
        kept, _, answer = self._folded(rest[max(0, size) :], before)
        return kept + answer

    def _folded(self, row: bytes, before: Row | None) -> tuple[bytes, tuple[int | None, ...], bytes]:
        """Return the new state, the timer as of `parts_of`, and the answer to a row."""

        return self._kept(
            lambda codec: codec.decode(row), lambda found: self.function(self._row(found), before), lambda state: state
        )

    def _kept(
        self,
        read: Callable[[RowCodec], dict[str, Any]],
        call: Callable[[dict[str, Any]], object],
        stored: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        is_timer: bool = False,
    ) -> tuple[bytes, tuple[int | None, ...], bytes]:
        """As `_folded`. Args: stored: returns the values that stand for a state."""
        codec, fit, _ = self._states or self._made_states()
        kept, returned = _SIZE.pack(_KEPT), None
        timer: tuple[int | None, ...] = ()

        def called(row: dict[str, Any]) -> object:
            nonlocal returned
            returned = parts_of(call(row), timers=self._has_timers)
            return returned[0]

        def keep() -> None:
            nonlocal kept, timer
            assert returned is not None, "the function has returned it"
            state = returned[1].asDict() if isinstance(returned[1], Row) else returned[1]
            if isinstance(state, Mapping):  # the key is not part of the state, but may be in it, as in batches
                state = {name: value for name, value in state.items() if name not in self.keys}
            after = None if state is None else codec.encode(stored(fit(state)))
            kept, timer = _SIZE.pack(_NONE) if after is None else _SIZE.pack(len(after)) + after, returned[2]

        answer = self._answer(read, called, keep, is_timer=is_timer)
        return kept, timer, answer

    def alone(self, request: bytes) -> bytes:
        """Return the answer to a row as the only one of its key, without the state. Raises: RefusedRow."""
        answer = self(self.without_state + request)[len(self.without_state) - _SIZE.size :]
        return answer[_SIZE.size + max(0, _SIZE.unpack_from(answer)[0]) :]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_codecs": None, "_states": None}

    def _made_states(self) -> tuple[RowCodec, Fit, Callable[..., Row]]:
        made = RowCodec(self._stored_as(), ZoneInfo(self.zone))
        self._states = made, Fit("state", self.state), Row(*self.state.names)
        return self._states

    def _stored_as(self) -> T.StructType:
        return self.state


@dataclass(kw_only=True)
class TimerCalls(StateCalls):
    """As `StateCalls`, with timers: a state is stored with its key, which the function of a timer gets.

    Args: on_timer: takes a key, the time of its timer, and its state.
    """

    on_timer: Callable[..., object]

    without_state: ClassVar[bytes] = _TIME.pack(_NO_TIMER) + _SIZE.pack(_NONE)
    _has_timers: ClassVar[bool] = True

    def __call__(self, request: bytes) -> bytes:
        """Return the answer to a row, or to a timer. Raises: RefusedRow."""
        codec, _, make = self._states or self._made_states()
        fired, rest = _TIME.unpack_from(request)[0], request[_TIME.size :]
        size, rest = _SIZE.unpack_from(rest)[0], rest[_SIZE.size :]
        known = None if size == _NONE else codec.decode(rest[:size])
        before = None if known is None else make(*known["state"].values())
        if known is None or fired == _NO_TIMER:
            kept, timer, answer = self._folded(rest[max(0, size) :], before)
        else:
            kept, timer, answer = self._fired(known["key"], fired, before)
        change = timer[0] if timer else _KEPT_TIMER
        return _TIME.pack(_NO_TIMER if change is None else change) + kept + answer

    def _folded(self, row: bytes, before: Row | None) -> tuple[bytes, tuple[int | None, ...], bytes]:
        key: dict[str, Any] = {}

        def read(codec: RowCodec) -> dict[str, Any]:
            found = codec.decode(row)
            key.update((name, found[name]) for name in self._named())
            return found

        return self._kept(
            read, lambda found: self.function(self._row(found), before), lambda state: {"key": key, "state": state}
        )

    def _fired(self, key: dict[str, Any], time: int, before: Row | None) -> tuple[bytes, tuple[int | None, ...], bytes]:
        at = timer_time(time, ZoneInfo(self.zone))

        def call(_: dict[str, Any]) -> object:
            returned = self.on_timer(Row(*self.keys)(*key.values()), at, before)
            check_next(parts_of(returned, timers=True)[2], time)
            return returned

        return self._kept(
            lambda _: {"key": key, "timer": at}, call, lambda state: {"key": key, "state": state}, is_timer=True
        )

    def _named(self) -> list[str]:
        """Return the names of the key's columns in rows. Spark ignores their case."""
        names = {name.casefold(): name for name in self.given.names}
        return [names[key.casefold()] for key in self.keys]

    def _stored_as(self) -> T.StructType:
        return stored_with_key(self.given, self._named(), self.state)


def stored_with_key(rows: T.StructType, keys: Sequence[str], state: T.StructType) -> T.StructType:
    """Return the schema of stored states with timers. Args: rows: has the columns of the key. keys: their names."""
    key = T.StructType([rows[name] for name in keys])
    return T.StructType([T.StructField("key", key), T.StructField("state", state)])


def _beyond(kind: T.DataType, number: int) -> str:
    """Return the text of a time that Python can't represent."""
    is_date = isinstance(kind, T.DateType)
    plain = pa.date32() if is_date else pa.timestamp("us", "UTC" if isinstance(kind, T.TimestampType) else None)
    try:
        return str(pa.array([number], pa.int32() if is_date else pa.int64()).cast(plain).cast(pa.string())[0])
    except pa.ArrowException:
        return "out of range"
