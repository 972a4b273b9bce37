"""Traced: the work of a host as spans: when each operation began, how long it took, and how it ended.

This module knows nothing of OpenTelemetry. A host records spans and publishes them in its status, and the coordinator
sends them (`runtime/supervision/spans.py`). So a collector never delays a host, and a host that died has spans too.

    with context.recorder.span("epoch", processor="rank") as span:  # a trace
        with step("compute"):  # a part of the span that this thread records
            ...
        span.note(results=3)

Without a recorder that is on, nothing is recorded, and a step is one look at a variable of the thread. Attributes are
names and numbers that Falkirk has chosen. Nobody puts parts of records or messages of errors into them.
"""

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from falkirk.errors import FalkirkError
from falkirk.platform.machine_time import MachineTime

_Value = str | int | float | bool
#: A host publishes a span for this time, and at most so many at once.
KEPT_S, KEPT_MAX = 10.0, 200
#: A span has at most so many steps. Further ones are not recorded.
STEPS_MAX = 50
_TEXT_MAX = 200
_CONDITION = re.compile(r"\w[\w.]{0,99}")


@dataclass(slots=True, kw_only=True)
class Span:
    """One operation. Args: error: the condition that ended it; empty: it succeeded. steps: its parts, by their ends."""

    name: str
    began_s: float
    took_s: float = 0.0
    error: str = ""
    attributes: dict[str, _Value] = field(default_factory=dict)
    steps: list["Span"] = field(default_factory=list)
    began_at_s: float = field(default_factory=time.monotonic)

    def note(self, **attributes: _Value) -> None:
        """Add attributes."""
        self.attributes |= {k: v[:_TEXT_MAX] if isinstance(v, str) else v for k, v in attributes.items()}

    def end(self, error: BaseException | None = None) -> None:
        """End it now. Args: error: that ended it."""
        self.took_s = max(0.0, time.monotonic() - self.began_at_s)
        self.error = "" if error is None else condition_of(error)

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name, "began_s": self.began_s, "took_s": self.took_s, "error": self.error,
            "attributes": self.attributes, "steps": [step.describe() for step in self.steps],
        }  # fmt: skip


class _NoSpan(Span):
    """Stands for a span that nobody records."""

    __slots__ = ()

    def note(self, **attributes: _Value) -> None:
        """See Span."""


_NOTHING = _NoSpan(name="", began_s=0.0)
#: The span that this thread records.
_current: ContextVar[Span | None] = ContextVar("falkirk_span", default=None)


def condition_of(error: BaseException) -> str:
    """Return the name of an error: Falkirk's condition, Spark's, or its class. Its message may quote records."""
    if isinstance(error, FalkirkError):
        return error.condition
    found = None
    with contextlib.suppress(Exception):  # Spark asks the JVM, which may have died
        found = error.getCondition()  # type: ignore[attr-defined]
    return found if isinstance(found, str) and _CONDITION.fullmatch(found) else type(error).__name__


@contextlib.contextmanager
def _recorded(span: Span) -> Iterator[Span]:
    """Make a span the one that this thread records, and end it."""
    token = _current.set(span)
    try:
        yield span
    except BaseException as error:
        span.end(error)
        raise
    else:
        span.end()
    finally:
        _current.reset(token)


def step(name: str, **attributes: _Value) -> contextlib.AbstractContextManager[Span]:
    """Record a part of the span that this thread records. Without one, do nothing."""
    whole = _current.get()
    if whole is None or len(whole.steps) >= STEPS_MAX:
        return contextlib.nullcontext(_NOTHING)
    part = Span(name=name, began_s=time.time())
    part.note(**attributes)
    whole.steps.append(part)
    return _recorded(part)


def add_attributes(**attributes: _Value) -> None:
    """Add attributes to the span that this thread records. Without one, do nothing."""
    if (span := _current.get()) is not None:
        span.note(**attributes)


class Recorder:
    """Records the spans of a host, and keeps those that ended last.

    Args: is_on: False: it records nothing. clock: measures how long a span is published.
    """

    def __init__(self, *, is_on: bool = True, clock: MachineTime = time) -> None:
        self.is_on, self._clock = is_on, clock
        self._lock = threading.Lock()
        self._ended: deque[tuple[int, Span]] = deque(maxlen=KEPT_MAX)
        #: By number: when a span was published first.
        self._since_s: dict[int, float] = {}
        self._count = 0

    def span(
        self, name: str, *, began_s: float | None = None, **attributes: _Value
    ) -> contextlib.AbstractContextManager[Span]:
        """Record a span. If this thread records one already, it becomes a step of it.

        Args: began_s: when it began, as Unix time; None: now.
        """
        if not self.is_on:
            return contextlib.nullcontext(_NOTHING)
        return self._span(name, time.time() if began_s is None else began_s, attributes)

    @contextlib.contextmanager
    def _span(self, name: str, began_s: float, attributes: dict[str, _Value]) -> Iterator[Span]:
        if _current.get() is not None:
            with step(name, **attributes) as part:
                yield part
            return
        whole = Span(name=name, began_s=began_s)
        whole.began_at_s -= max(0.0, time.time() - began_s)
        whole.note(**attributes)
        try:
            with _recorded(whole):
                yield whole
        finally:
            self.add(whole)

    def add(self, span: Span) -> None:
        """Add a span that has ended."""
        if self.is_on:
            with self._lock:
                self._count += 1
                self._ended.append((self._count, span))

    def recent(self) -> list[dict[str, Any]]:
        """Return the spans that ended last as plain values. Their numbers grow, and several calls return one span."""
        if not self.is_on:
            return []
        now_s = self._clock.monotonic()
        with self._lock:
            while self._ended and now_s - self._since_s.get(self._ended[0][0], now_s) > KEPT_S:
                self._ended.popleft()
            found = [*self._ended]
            self._since_s = {number: self._since_s.get(number, now_s) for number, _ in found}
        return [{"number": number, **span.describe()} for number, span in found]


#: Records nothing.
OFF = Recorder(is_on=False)
