"""Kit: an application under test. A test feeds rows, reads rows, moves the clock, and crashes the application."""

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.declare.endpoints import EpochTopic, Kafka
from falkirk.declare.nodes import LOOKUP, all_steps_of
from falkirk.declare.policy import duration_s
from falkirk.declare.sink import OwnSink
from falkirk.errors.conditions.testkit import (
    APPLICATION_UNSUITABLE,
    APPLICATION_UNSUITABLE_GROWTH,
    APPLICATION_UNSUITABLE_PATTERN,
    NAME_UNKNOWN,
    SINK_NOT_READ,
    STEP_FAILED,
)
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.patterns import with_topics
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.recordings import Recordings, node_of
from falkirk.plan.requests import bound
from falkirk.plan.schemas import without_registries
from falkirk.plan.shape import layout_of
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.runtime.spark.application.logs import AllLogs, KafkaLogs
from falkirk.runtime.spark.sinks.epoch_logs import EpochLogs
from falkirk.spark_setup.observing import observing
from falkirk.spark_setup.spark import spark_session
from falkirk.theory.ids import cluster_of, topic_name
from falkirk.user_tools.testkit.batches import MemoryBatch, batches_in_memory
from falkirk.user_tools.testkit.chunks import ChunkSteps, needs_chunks
from falkirk.user_tools.testkit.folders import FedFolder, file_logs
from falkirk.user_tools.testkit.live import MemoryRegion
from falkirk.user_tools.testkit.logs import MemoryLogs
from falkirk.user_tools.testkit.place import IDENTITY, context_of, create_home
from falkirk.user_tools.testkit.steps import LiveSteps
from falkirk.user_tools.testkit.values import decoded, memory_records, read_records
from falkirk.user_tools.testkit.views import MemoryViews
from falkirk.user_tools.testkit.world import Crash, World

#: The time at which a test begins unless it says another.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
Planned = tuple[Plan, Mapping[str, LiveSteps | ChunkSteps]]
"""A plan, and the steps of its live regions."""
#: By application: the results by the declaration and the session for which it was planned, and its topics.
_plans: WeakKeyDictionary[Application, dict[tuple[object, ...], Planned]] = WeakKeyDictionary()


class Abort:
    """In a test's input: the application crashes here, and starts again from its last checkpoint."""

    def __repr__(self) -> str:
        return "ABORT"


#: The only one of its kind.
ABORT = Abort()


class Kit:
    """An application under test. Made by `falkirk.testing.run`; use it as a context manager.

    Attributes: crash_before: the number of the write before which it crashes; 0: it crashes only if the test says so.
        and_before: the number of a later write before which it crashes again; 0: it does not. recovered: the numbers of
        the writes of the first start after the crash before `crash_before`.
    Args: at: the time at which the test begins. own_sinks: call the sinks of the user's own. topics: the names of the
        topics that exist, for sources with a pattern.
    """

    def __init__(
        self, app: Application, *, at: datetime = BEGINNING, own_sinks: bool = False, crash_before: int = 0,
        and_before: int = 0, topics: Sequence[str] = (),
    ) -> None:  # fmt: skip
        session = spark_session(
            app.name, master="local[2]", state_partitions=app.state_partitions, brief=True, shows_log=False
        )
        self._declared, self._topics, self._own = app, {*topics}, own_sinks
        self._session, self._watched = session, observing(session)
        self._make_plan()
        self._folder = tempfile.TemporaryDirectory(prefix="falkirk-kit-")
        self._folders = {
            name: FedFolder(declared, Path(self._folder.name) / "fed" / name, session)
            for name, declared in app.folders.items()
        }
        self.world = World(at.timestamp())
        self._home: Home | None = create_home(Path(self._folder.name) / "home", self._app.name, self.world)
        try:
            self._open(self._home)
        except BaseException:
            self.close()
            raise
        self.world.writes, self.world.crash_before = 0, frozenset({crash_before, and_before} - {0})
        self.crash_before, self.and_before, self.recovered = crash_before, and_before, range(0)

    def __repr__(self) -> str:
        crash = f", which crashes before write {self.crash_before}" if self.crash_before else ""
        crash += f" and before write {self.and_before}" if self.and_before else ""
        return f"<Kit of {self._app.name!r}{crash}>"

    def __enter__(self) -> "Kit":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the application, and delete its home."""
        if self._home is not None:
            self._home.close()
            self._home = None
            self._folder.cleanup()

    def _make_plan(self) -> None:
        app = with_topics(self._declared, self._existing)
        self._app = bound(app, IDENTITY)
        self._plan, self._steps = planned(self._declared, app, self._session)
        self._layout = layout_of(self._plan, lambda topic: 1)

    def _existing(self, cluster: str) -> set[str]:
        if not self._topics:
            raise APPLICATION_UNSUITABLE_PATTERN.error(source=next(iter(self._declared.patterns)))
        return {topic_name(topic) for topic in self._topics if cluster_of(topic) == cluster}

    # -- actions of a test ---------------------------------------------------------------------------------------------

    def feed(self, source: str, rows: Iterable[object]) -> None:
        """Write records to a source, and process them. A source that is a folder gets them as one file.

        Args: rows: each a mapping, a sequence of values, or the bytes of a record, which need not fit the schema; in a
            file, bytes are a line, and a Parquet file has none. A `KafkaRecord` adds a key, headers and a timestamp.
            At `ABORT`, the application has processed the rows before it, crashes, and starts again.
        Raises: DefinitionError: `NAME_UNKNOWN`, `ROW_INVALID`. SparkError: `STEP_FAILED`.
        """
        fed: list[object] = []
        for row in rows:
            if isinstance(row, Abort):
                self._add(source, fed)
                self.crash()
                fed = []
            else:
                fed.append(row)
        self._add(source, fed)

    def _add(self, source: str, rows: Sequence[object]) -> None:
        """Write rows to a source, to a folder as one file, and process them."""
        folder = self._folders.get(source)
        if folder is None:
            topic = self._source(source)
            self.world.topic(topic.log).extend(memory_records(self._session, rows, topic, self.world.time()))
        elif rows:
            folder.add(rows)
        self.settle()

    def create_topic(self, topic: str) -> None:
        """Create a topic. A source whose pattern matches it reads it from the next start on, such as `crash`.

        Args: topic: its name, on another cluster with `@` and the name of the cluster.
        """
        self._topics.add(topic)

    def read(self, sink: str) -> list[dict[str, Any]]:
        """Return what a reader of a sink sees: all records of a topic in order, or the rows of a table or folder.

        Raises: DefinitionError: `NAME_UNKNOWN`, `SINK_NOT_READ`.
        """
        output = self._app.sinks.get(sink)
        if output is None:
            raise NAME_UNKNOWN.error(kind="sink", name=sink, known=", ".join(self._app.sinks))
        if self._own and isinstance(output.to, OwnSink):
            raise SINK_NOT_READ.error(where=output.where, name=sink)
        if sink not in self.world.sinks:
            assert isinstance(output.to, Kafka), "a live region writes only topics"
            return read_records(self._session, [r.value for r in self.world.topic(output.to.log)], output.to)
        rows = [row for _, row in self.world.sinks[sink].rows]
        if isinstance(output.to, Kafka | EpochTopic) or not output.to.keys:
            return rows
        newest: dict[tuple[object, ...], dict[str, Any]] = {}
        for row in rows:
            newest[tuple(row[key] for key in output.to.keys)] = row
        return list(newest.values())

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return all dead letters, each with its reason, topic and value."""
        live = [self.world.topic(region.dead_letter_topic) for region in self._plan.regions]
        found = [decoded(record.value) for records in live for record in records]
        sinks = [self.world.sinks.get(f"dead letters of {batch.name}") for batch in self._plan.batches]
        return [*found, *(row for sink in sinks if sink is not None for _, row in sink.rows)]

    def advance(self, duration: str | float | timedelta) -> None:
        """Move the clock, end epochs by the clock, and save checkpoints, which release results that wait.

        The clock moves at once. A step that is due several times in between happens once, at the end.
        """
        self.world.sleep(duration_s(duration))
        self.settle()
        self._do(self._checkpoint_due)
        self.settle()

    def checkpoint(self) -> None:
        """Save a checkpoint of each processor now. Results that wait for it are published."""
        self._do(self._checkpoint_all)
        self.settle()

    def crash(self) -> None:
        """End the application without warning, and start it again from its last checkpoints."""
        assert self._home is not None, "the test has ended"
        before = self.world.writes
        while True:
            try:
                self._start_again(self._home)
            except Crash:  # before a write of the start itself
                continue
            break
        if not self.recovered and self.world.writes >= self.crash_before > 0:  # not after a crash of the test's own
            self.recovered = range(max(before, self.crash_before) + 1, self.world.writes + 1)
        self.settle()

    def _start_again(self, home: Home) -> None:
        before = {region.name: region.reads for region in self._plan.regions}
        if self._declared.patterns:
            self._make_plan()
        for region in self._plan.regions:
            if region.reads != before[region.name]:
                raise APPLICATION_UNSUITABLE_GROWTH.error(where=region.where, region=region.name)
        self._open(home)

    def settle(self) -> None:
        """Process all input so far. `feed` and `advance` do it themselves."""
        self._do(self._work)

    @property
    def now(self) -> datetime:
        """The present time of the application."""
        return datetime.fromtimestamp(self.world.time(), UTC)

    @property
    def writes(self) -> int:
        """The number of durable writes since the start. A crash can come before each of them."""
        return self.world.writes

    @property
    def by_spark(self) -> Mapping[str, str]:
        """The live regions whose results Spark computes, which takes tenths of a second, each with the reason.

        The results of the others are computed in this process. Batches are always computed by Spark.
        """
        return {name: steps.spark_reason for name, steps in self._steps.items() if steps.spark_reason}

    # -- how it does it -----------------------------------------------------------------------------------------------

    def _source(self, name: str) -> Kafka:
        source = self._app.sources.get(name)
        if source is None:
            known = ", ".join((*self._app.sources, *self._app.folders))
            raise NAME_UNKNOWN.error(kind="source", name=name, known=known)
        return source.topic

    def _open(self, home: Home) -> None:
        """Start the application. After a crash, the objects of the former run are forgotten."""
        context = context_of(self.world, home, self._session, self._app.state_partitions)
        self._live = {r.name: MemoryRegion(r, self.world, home.store, self._steps[r.name]) for r in self._plan.regions}
        files = file_logs(self._plan, self._folders, home.store)
        self._batches, logs, releasers = batches_in_memory(self._plan, context, files, self._own)
        self._views = MemoryViews(self._plan, logs, self._session)
        for batch in self._batches.values():
            batch.prepare()
        topics = cast(KafkaLogs, MemoryLogs(self.world, home.store))
        self._protocol = RecoveryProtocol(
            self._layout,
            {**self._live, **self._batches},
            AllLogs(topics, EpochLogs(logs, releasers, self._watched)),
            home.store,
            self.world.monotonic,
            history=self._app.history,
            live=self._live,
            spare=self._plan.spare_checkpoints,
        )
        self._protocol.open()

    def _do(self, work: Callable[[], None]) -> None:
        """Do some work; if the application crashes in it, start it again and let it finish its input."""
        try:
            work()
        except Crash:
            self.crash()

    def _work(self) -> None:
        is_moving = True
        while is_moving:
            is_moving = sum(self._step(name, unit) for name, unit in self._units()) > 0  # all of them
            self._protocol.turn()
            is_moving |= self._views.update(self._protocol.watermarks.settled_epochs, self._live.values())

    def _units(self) -> Iterator[tuple[str, MemoryRegion | MemoryBatch]]:
        yield from self._live.items()
        yield from self._batches.items()

    def _step(self, name: str, unit: MemoryRegion | MemoryBatch) -> bool:
        if isinstance(unit, MemoryRegion) and not self._views.are_ready(unit.region):
            return False  # its records wait for the first epoch of a view
        try:
            return unit.step()
        except SPARK_ERRORS as error:
            raise STEP_FAILED.error(unit=name, reason=first_line(error)) from error

    def _checkpoint_due(self) -> None:
        for region in self._live.values():
            if region.is_due():
                region.checkpoint()

    def _checkpoint_all(self) -> None:
        for _, unit in self._units():
            unit.checkpoint()


def planned(declaration: Application, app: Application, session: SparkSession) -> Planned:
    """Return the plan of an application as the kit runs it. The same declaration is planned once.

    Args: app: the declaration with the topics of its patterns.
    Raises: DefinitionError: `APPLICATION_UNSUITABLE`, and as `plan_application`.
    """
    known, given = _plans.setdefault(declaration, {}), declaration
    parts = (given.sources, given.patterns, given.folders, given.processors, given.sinks)
    declared = session.sparkContext.applicationId, *(id(part) for each in parts for part in each.values())
    if any(former[0] != declared for former in known):
        known.clear()
    key = declared, tuple(sorted(app.sources))
    if key in known:
        return known[key]
    if app.clocks:
        raise APPLICATION_UNSUITABLE.error(reason=f"source {next(iter(app.clocks))!r} is a clock")
    for sink in app.sinks.values():
        if isinstance(sink.to, Kafka) and sink.to.schemas is not None and sink.to.schema is None:
            reason = f"it has no registry to ask for the schema of sink {sink.name!r}; give it as schema="
            raise APPLICATION_UNSUITABLE.error(where=sink.where, reason=reason)
    app = without_registries(app)
    plan = plan_application(app, session, IDENTITY)
    if any(region.views and needs_chunks(region) for region in plan.regions):
        plan = plan_application(_with_lookups_in_epochs(app), session, IDENTITY)
    # A direct batch sends its results without a log. The kit computes the same ones into the log.
    plan = replace(plan, batches=tuple(replace(batch, is_direct=False) for batch in plan.batches))
    found = (
        plan,
        {
            region.name: (ChunkSteps if needs_chunks(region) else LiveSteps)(region, session, IDENTITY)
            for region in plan.regions
        },
    )
    known[key] = found
    return found


def _with_lookups_in_epochs(app: Application) -> Application:
    """Return the application with lookups of live steps in micro-batches, which mean the same.

    The operators that compute windows, joins and states of the user's in chunks don't read views.
    """
    found, recordings = copy.copy(app), Recordings()
    found.processors = dict(app.processors)
    for name, processor in app.processors.items():
        steps = [] if processor.cut is not None else all_steps_of(node_of(recordings.first(processor)))
        if any(step.operation == LOOKUP for step in steps):
            found.processors[name] = replace(processor, engine="micro-batch")
    return found
