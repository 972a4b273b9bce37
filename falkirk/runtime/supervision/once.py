"""Once: a run that ends when it has processed the input that was in the sources when it began (`falkirk run --once`).

The ends of the sources are a decision in the store. A run that is interrupted leaves it open, and the next one
continues to the same ends. A run that has finished, or an ordinary run, closes it.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.values import Decision
from falkirk.recovery.protocol.backlog import Backlog
from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.runtime.spark.epochs.until import Until
from falkirk.runtime.spark.live.inputs import end_of_records
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import LogId, LogKind, Positions
from falkirk.theory.offsets import positions_from_json, positions_to_json

_log = logging.getLogger("falkirk")

_KIND, _ENDS, _CLOSED = "once", "ends", "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceStatus:
    """How far a run with `--once` is.

    Args: is_over: it has nothing more to do. left: the number of records of the sources that are not processed yet.
        stuck: the processors that can't begin, each with the name of the view that has no epoch.
    """

    is_over: bool = False
    left: int = 0
    stuck: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


class Once:
    """One run with `--once`.

    Args: ends: returns where a log ends now. batches: by name. decided: the ends of the sources.
    """

    def __init__(
        self, layout: Layout, ends: Callable[[LogId], OffsetFrontier], store: Store,
        batches: Mapping[str, BatchRegion], decided: Decision,
    ) -> None:  # fmt: skip
        sources = positions_from_json(decided.content)
        self._store, self._batches, self._number = store, batches, decided.number
        self._backlog = Backlog(layout, ends, OffsetFrontier.before(sources))
        self._layout = layout
        self.status = OnceStatus()
        self._bound_batches()

    def update(self, recovery: RecoveryProtocol) -> None:
        """Update the backlog after a turn of the protocol. Raises: StoreError."""
        self._backlog.take_in({name: self._covered(name, recovery) for name in self._layout.stages})
        self._bound_batches()
        down = recovery.down.errors
        waits = self._backlog.waits({held: recovery.released(held) for held in self._layout.held}, down)
        is_over = not waits.unfinished
        if is_over and not down:
            close_run(self._store, self._number)
        stuck = {name: log.removeprefix(LogId.of_epochs("")) for name, log in waits.stuck.items()} if is_over else {}
        for name, view in stuck.items():
            _log.warning("%s has input that waits for the first epoch of %s", name, view)
        self.status = OnceStatus(is_over=is_over, left=waits.left, stuck=stuck)

    def _covered(self, name: str, recovery: RecoveryProtocol) -> OffsetFrontier:
        checkpoints = recovery.checkpoints.get(name, ())
        read = checkpoints[-1].read if checkpoints else EMPTY
        batch = self._batches.get(name)
        return read if batch is None else read | batch.at_rest_with()

    def _bound_batches(self) -> None:
        """Tell each batch where its inputs end, as far as that is known."""
        for name, batch in self._batches.items():
            known = {log: end.positions().get(log, {}) for log, end in self._backlog.ends(name).items()}
            batch.jobs.until = Until(ends=known, is_final=self._backlog.is_final(name))


def begin_once(
    layout: Layout, ends: Callable[[LogId], OffsetFrontier], context: Context, batches: Mapping[str, BatchRegion], *,
    is_once: bool, tick: Callable[[], None],
) -> Once | None:  # fmt: skip
    """Begin a run with `--once`, or continue an interrupted one. An ordinary run closes it, and returns None.

    Call it before a batch decides on its epochs.

    Args: tick: writes the time to all clocks, so that timers that are due when the run begins fire in it. The others
        are those of `Once`.
    Raises: LogError, StoreError.
    """
    store = context.home.store
    if not is_once:
        if (found := open_decision(store)) is not None:
            close_run(store, found.number)
        return None
    files = {log: file for batch in batches.values() for log, file in batch.jobs.files.items()}

    def ends_now(logs: Collection[LogId]) -> Positions:
        tick()
        return ends_of_sources(logs, topics=context.topics, connection=context.connection, files=files)

    decided = decide_ends(store, layout.sources, ends_now)
    return Once(layout, ends, store, batches, decided)


def open_decision(store: Store) -> Decision | None:
    """Return the ends of the last run with `--once`, unless it has finished. Raises: StoreError."""
    newest = store.newest_decision(_KIND, _ENDS)
    is_closed = newest is None or store.decision(_KIND, _CLOSED, newest.number) is not None
    return None if is_closed else newest


def close_run(store: Store, number: int) -> None:
    """Record that the next run with `--once` takes new ends. Raises: StoreError."""
    store.record_decision(_KIND, _CLOSED, number, {})


def decide_ends(store: Store, sources: Collection[LogId], ends: Callable[[Collection[LogId]], Positions]) -> Decision:
    """Return the ends of this run: those of an interrupted one, or new ones.

    A source that was added since the interruption gets an end too. Without one it would count as empty.

    Args: ends: returns where sources end now. Raises: StoreError, and the errors of `ends`.
    """
    found = open_decision(store)
    content: dict[str, Any] = {} if found is None else dict(found.content)
    new = [log for log in sources if log not in content]
    if found is not None and not new:
        return found
    newest = store.newest_decision(_KIND, _ENDS)
    number = 0 if newest is None else newest.number + 1
    content |= positions_to_json(ends(new))
    store.record_decision(_KIND, _ENDS, number, content)
    decided = store.decision(_KIND, _ENDS, number)
    assert decided is not None, "it was just recorded"
    return decided


def ends_of_sources(
    logs: Collection[LogId], *, topics: Topics, connection: Connection, files: Mapping[LogId, FileLog]
) -> Positions:
    """Return where sources of an application end now. Args: files: of all folder sources.

    Raises: LogError, StoreError.
    """
    return {
        log: {0: files[log].present_end()} if log.kind is LogKind.FILES else end_of_records(topics, connection, log)
        for log in logs
    }
