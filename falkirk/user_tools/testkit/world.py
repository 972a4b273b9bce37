"""World: everything that outlives a crash of the application under test: topics, checkpoints, sinks, and the clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from falkirk.theory.ids import CheckpointNumber, LogId, Offset


class Crash(BaseException):
    """The application under test ends here. It is no `Exception`, so no code of the application catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A record of a topic.

    Args: stamp: the numbers of the stamp of a result, or the offset in the held log of a copy; empty for input.
        headers: of input.
    """

    key: bytes | None
    value: bytes | None
    timestamp_us: int
    stamp: tuple[int, ...] = ()
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint of a live region.

    Args: read: how many records of each source are in it. sent: the end of the output when it was made. state: that of
        the keyed step. made_at_s: None: the initial state.
    """

    read: tuple[Offset, ...]
    sent: Offset
    state: Any = None
    made_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Input that a live region processes at once: see `chunks.py`.

    Args: ends: of its sources. source, offset: the stamp of its results. at_s: when it was processed first.
    """

    ends: tuple[Offset, ...]
    source: int
    offset: Offset
    at_s: float


@dataclass(slots=True)
class SinkContent:
    """The content of a sink of a batch. Args: rows: with the number of their epoch. complete: before this epoch."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    complete: int = 0


class World:
    """Everything that outlives a crash. Args: now_s: the time at which the test begins, in seconds since 1970.

    Attributes: writes: the number of durable writes so far. crash_before: the numbers of the writes before which the
        application crashes.
    """

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self.writes, self.crash_before = 0, frozenset[int]()
        self.topics: dict[LogId, list[MemoryRecord]] = {}
        self.saved: dict[str, dict[CheckpointNumber, Saved]] = {}
        self.sinks: dict[str, SinkContent] = {}
        #: The chunks of each live region that is computed in chunks, in their order.
        self.chunks: dict[str, list[Chunk]] = {}
        #: The input that each at-most-once region never processes.
        self.skipped: dict[str, set[Offset]] = {}

    # -- the clock ----------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the present time, in seconds since 1970. Only the test moves it."""
        return self.now_s

    def monotonic(self) -> float:
        """Return the same time, which the test never moves back."""
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        """Move the clock."""
        self.now_s += seconds

    # -- writes -------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Count a durable write, which follows. Raises: Crash."""
        self.writes += 1
        if self.writes in self.crash_before:
            raise Crash

    def topic(self, name: LogId) -> list[MemoryRecord]:
        """Return the records of the only partition of a topic."""
        return self.topics.setdefault(name, [])

    def append(self, topic: LogId, record: MemoryRecord) -> None:
        """Write a record. Raises: Crash: before it."""
        self.write()
        self.topic(topic).append(record)

    def end(self, topic: LogId) -> Offset:
        """Return the end of a topic."""
        return Offset(len(self.topic(topic)))

    def since(self, topic: LogId, first: Offset) -> Iterator[tuple[Offset, MemoryRecord]]:
        """Yield the records of a topic from an offset on, with their offsets."""
        for offset, record in enumerate(self.topic(topic)[first:], first):
            yield Offset(offset), record
