"""Application: one application of sources, processors and sinks, declared without Spark.

A processor is a function whose parameters name what it reads. Its body runs when the application is planned.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

from falkirk.declare.accepted import as_endpoint, as_source
from falkirk.declare.address import DEFAULT, as_address
from falkirk.declare.annotations import marks_of, views_of_stream
from falkirk.declare.checks import (
    HISTORY_MAX,
    as_delivery,
    body_location,
    by_clock_or_rows,
    by_time,
    check_counts,
    check_engine,
    check_history,
    check_name,
    check_transactional,
    parameters_of,
    policy_misplaced,
)
from falkirk.declare.clock import Clock
from falkirk.declare.cut import ByTime, Cut, OnArrival
from falkirk.declare.endpoints import Endpoint, EpochTopic, Files, Kafka
from falkirk.declare.http import Http
from falkirk.declare.nodes import ProcessorNode, SourceNode, part_of
from falkirk.declare.parts import DeclaredProcessor, DeclaredSink, Iteration, Stamped
from falkirk.declare.place import home_place
from falkirk.declare.policy import (
    DEFAULT_POLICY,
    Delivery,
    Duration,
    Eager,
    FullHistory,
    Lazy,
    LogSends,
    Policy,
    duration_s,
)
from falkirk.declare.sink import Sink
from falkirk.declare.stream import Body, Stream, source_node
from falkirk.declare.tls import Tls
from falkirk.declare.view import View
from falkirk.errors.conditions.declare import (
    ITERATION_INVALID,
    ITERATION_INVALID_VIEW,
    NAME_TAKEN,
    NAME_TAKEN_KIND,
    POLICY_UNKNOWN,
    STATE_UNDECLARED,
    UPSTREAM_MISSING,
    UPSTREAM_MISSING_EPOCHS,
    UPSTREAM_UNNAMED,
)
from falkirk.errors.location import SourceLocation, caller
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.secret import Secret


class Application:
    """The declared sources, processors, sinks and settings of an application. `falkirk.App` documents the arguments."""

    def __init__(
        self,
        name: str,
        *,
        kafka: "str | Connection | None" = None,
        home: str | Path | None = None,
        buffer_timeout: Duration = "1 ms",
        state_partitions: int = 2,
        history: int | str | timedelta = 10,
        spare_checkpoints: int = 0,
        transactional: bool | None = None,
        store: str | None = None,
        http: str = DEFAULT,
        http_token: str | None = None,
        http_tls: Tls | None = None,
    ) -> None:
        where = caller()
        check_name(name, "an application", where)
        check_counts(
            where,
            state_partitions=(state_partitions, 1, None),
            spare_checkpoints=(spare_checkpoints, 0, HISTORY_MAX),
        )
        check_transactional(transactional, where)
        duration_s(buffer_timeout)
        self.name = name
        self.kafka = Connection.of(kafka) if kafka is not None else None
        #: The folder for the files of this machine. The address of the data, if they are in an object store.
        self.home, self.data = home_place(home, name, store, where)
        self.buffer_timeout = buffer_timeout
        self.state_partitions = state_partitions
        self.history = check_history(history, where)
        self.spare_checkpoints = spare_checkpoints
        #: A former owner of a home in an object store may be suspended, and only the broker refuses what it then sends.
        self.transactional = True if transactional is None and self.data is not None else transactional
        self.store = store
        self.http = as_address(http, where)
        self.http_tls = http_tls
        self.http_token = None if http_token is None else Secret(http_token)
        self.sources: dict[str, SourceNode] = {}
        #: The sources with several topics: the names in `sources` of the source of each topic.
        self.lists: dict[str, tuple[str, ...]] = {}
        #: The sources with a pattern. A start adds the matching topics to `sources` and `lists` (plan/patterns.py).
        self.patterns: dict[str, Kafka] = {}
        self.pushed: dict[str, Http] = {}
        self.clocks: dict[str, Clock] = {}
        self.folders: dict[str, Files] = {}
        self.processors: dict[str, DeclaredProcessor] = {}
        self.sinks: dict[str, DeclaredSink] = {}

    def _claim(self, name: str, where: SourceLocation) -> None:
        sources = {*self.sources, *self.lists, *self.patterns, *self.folders}
        for kind, taken in (("source", sources), ("processor", {*self.processors})):
            if name in taken:
                raise NAME_TAKEN_KIND.error(where=where, name=name, kind=kind)

    def source(self, name: str, from_: Kafka | Http | Clock | Files) -> Stream:
        """Declare what processors read under `name`: a topic, requests over HTTP, the times of a clock, or a folder of
        files for batches.
        """
        where = caller()
        self._claim(name, where)
        if isinstance(from_, Http):
            check_name(name, "a source of requests", where)
            from_.refuse_same_path(self.pushed.values())
            self.pushed[name] = from_
            from_ = from_.topic(self.name, "HOME", name)  # until the home is known
        elif isinstance(from_, Clock):
            check_name(name, "a clock", where)
            self.clocks[name] = from_
            from_ = from_.topic(self.name, "HOME", name)
        found = as_source(from_, where)
        if isinstance(found, Files):
            self.folders[name] = found
            return Stream(ProcessorNode(name=name))
        if found.pattern is not None:
            self.patterns[name] = found
            return Stream(ProcessorNode(name=name))
        if found.several:
            self.add_list(name, found.each)
            return Stream(ProcessorNode(name=name))
        self.sources[name] = source_node(name, found)
        return Stream(self.sources[name])

    def add_list(self, name: str, topics: Sequence[Kafka]) -> None:
        """Add a source for each topic that is read under `name`."""
        self.lists[name] = tuple(part_of(name, topic.name) for topic in topics)
        self.sources |= {part: source_node(part, t) for part, t in zip(self.lists[name], topics, strict=True)}

    def stream(
        self, policy: Policy | None = None, *, engine: Literal["live", "micro-batch"] | None = None
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a processor of streams; its parameters name what it reads.

        Each parameter gets a `Stream`, on both engines and under every policy but `Eager`; one marked `View` gets a
        view for `Stream.lookup`. Under `Eager` the function is a `batch`: each parameter gets a PySpark DataFrame with
        the records that have arrived.

        The function only records steps. Falkirk calls it when it plans the application, and uses the recorded steps
        from then on. A second call shows whether the function itself is deterministic; `deterministic` omits it.

        Args:
            policy: how the processor survives failures: `Lazy` (default), `Ephemeral`, `Snapshots`, `LogSends`,
                `Acknowledged` or `Eager`.
            engine: where the processor runs. By default it runs live if it can, otherwise in micro-batches, and
                `falkirk plan` shows why.
        """
        check_engine(engine, caller())
        if policy is not None and not isinstance(policy, Policy):
            raise POLICY_UNKNOWN.error(where=caller(), policy=policy)

        if isinstance(policy, Eager):
            if engine == "live":
                raise policy_misplaced(policy, 'engine="live"', 'engine="micro-batch", or another policy')
            return self._declare_batch(OnArrival(), policy, None)
        if isinstance(policy, FullHistory):
            raise policy_misplaced(policy, "a stream", "@app.batch()")

        def declare(body: Body) -> Body:
            views, reads, where = views_of_stream(body), tuple(parameters_of(body)), body_location(body)
            if reads and views == {*reads}:
                raise UPSTREAM_MISSING_EPOCHS.error(where=where, processor=body.__name__)
            self.add_processor(
                body.__name__, body, reads=reads, policy=policy or DEFAULT_POLICY, where=where, views=views,
                engine=engine,
            )  # fmt: skip
            return body

        return declare

    def batch(
        self,
        *,
        every: Duration | None = None,
        rows: int | None = None,
        by: str | None = None,
        late: Duration | None = None,
        over: Duration | None = None,
        ahead: Duration | None = None,
        policy: Policy | None = None,
        state: str | None = None,
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a batch: a DataFrame job for each complete epoch of its input.

        The function's parameters name what it reads. Under every policy each gets a PySpark DataFrame with exactly that
        epoch's rows. The function returns a DataFrame, and may use all of PySpark. A parameter marked `View` gets the
        newest complete epoch of another batch.

        Falkirk calls the function for each epoch. It also calls it with empty DataFrames when it plans the application:
        once for the columns and the plan, and a second time to compare both plans. A clock or a random number that
        Python reads shows only there. `deterministic` omits the second call. The function must not have side effects.

        Args:
            every: an epoch is complete at each multiple of this duration, by the clock.
            rows: an epoch is complete at this number of records. Give either `every` or `rows`.
            by: with `every`, divide epochs by event time: a TIMESTAMP column in all inputs except views. An epoch is a
                range of this time. It is complete when all partitions have passed its end.
            late: how far back in time the rows of a partition may go. A row that is later, and whose epoch is over,
                becomes a dead letter.
            over: the length of an epoch, a multiple of `every`, for sliding windows.
            ahead: how far a row's time may be ahead of the clock, 1 minute by default. A row further ahead becomes a
                dead letter, so that it does not make all others late.
            policy: how the batch survives failures: `LogSends` (default), `FullHistory`, `Eager` (the default with
                `state`), or with `state` also `Lazy`.
            state: the columns, as Spark DDL, of the state that the batch keeps between epochs. The function then has a
                parameter with its own name. It returns its next state, also as its result, or ``(result, state)``.
        """
        where = caller()
        cut: Cut | ByTime = by_clock_or_rows(every, rows, "batch", where)
        if policy is None:
            policy = LogSends() if state is None else Eager()
        if not isinstance(policy, LogSends | FullHistory | Lazy | Eager):
            raise policy_misplaced(policy, "a batch", "fk.LogSends(), fk.FullHistory(), fk.Lazy() or fk.Eager()")
        if by is not None or late is not None or over is not None or ahead is not None:
            cut = by_time(every, by, late, over, ahead, where)
        return self._declare_batch(cut, policy, state)

    def iterate(
        self,
        *,
        every: Duration | None = None,
        rows: int | None = None,
        rounds: int = 1_000,
        until: float = 0.0,
        sends: Literal["changes", "all"] = "changes",
        policy: Policy | None = None,
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a loop over collections that change, kept up to date in every epoch.

        The function's parameters name what it reads. Each gets a `falkirk.Collection`, and each epoch adds rows to it.
        With a column `difference`, a row is added that many times or, below 0, removed. The function returns a
        collection. A time is (epoch, round, …), with a round for each enclosing loop.

        Args:
            every, rows: when an epoch is complete, as in `batch`.
            rounds: the largest number of rounds of each loop in an epoch, unless the loop sets another. The log reports
                an epoch whose loops did not finish.
            until: in a loop that resumes from its former result (`fixpoint`), numbers that change by at most this
                amount stay unchanged. It is refused if no loop uses it.
            sends: ``"changes"`` sends the changes of the result, with their `difference`. ``"all"`` sends the whole
                result at each epoch, for readers of its newest epoch.
            policy: `Eager` (default) saves the state at each epoch; or `Lazy`.
        """
        where, policy = caller(), policy or Eager()
        cut = by_clock_or_rows(every, rows, "iterate", where)
        if not isinstance(policy, Lazy | Eager):
            raise policy_misplaced(policy, "an iteration", "fk.Eager() or fk.Lazy()")
        if (
            type(rounds) is not int
            or rounds < 1
            or type(until) not in (int, float)
            or until < 0
            or sends not in ("changes", "all")
        ):
            raise ITERATION_INVALID.error(where=where, rounds=rounds, until=until, sends=sends)
        return self._declare_batch(cut, policy, None, Iteration(rounds=rounds, until=float(until), sends=sends))

    def _declare_batch(
        self, cut: Cut | ByTime, policy: Policy, state: str | None, iteration: Iteration | None = None
    ) -> Callable[[Body], Body]:
        def declare(body: Body) -> Body:
            name, where = body.__name__, body_location(body)
            parameters = parameters_of(body)
            if (state is not None) != (name in parameters):
                raise STATE_UNDECLARED.error(
                    where=where,
                    processor=name,
                    lack="has no parameter for its" if state else "reads its own, undeclared,",
                )
            marks = marks_of(body)
            views = frozenset(parameter for parameter, mark in marks.items() if mark is View)
            stamps = {parameter: "stamp" for parameter, mark in marks.items() if mark is Stamped}
            if views and iteration is not None:
                raise ITERATION_INVALID_VIEW.error(where=where, name=name, views=", ".join(sorted(views)))
            if name in views or not parameters.keys() - views - {name}:
                raise UPSTREAM_MISSING_EPOCHS.error(where=where, processor=name)
            self.add_processor(
                name, body, reads=tuple(parameters), policy=policy, where=where, cut=cut, views=views, stamped=stamps,
                state=state, iteration=iteration,
            )  # fmt: skip
            return body

        return declare

    def add_processor(
        self,
        name: str,
        body: Body,
        *,
        reads: tuple[str, ...],
        policy: Policy,
        where: SourceLocation | None = None,
        cut: Cut | ByTime | None = None,
        views: frozenset[str] = frozenset(),
        stamped: Mapping[str, str] | None = None,
        state: str | None = None,
        engine: Literal["live", "micro-batch"] | None = None,
        iteration: Iteration | None = None,
    ) -> None:
        """Declare a processor without a decorator. `body` gets one stream or DataFrame for each name in `reads`."""
        where = where or caller()
        check_name(name, "a processor", where)
        self._claim(name, where)
        if not reads:
            raise UPSTREAM_MISSING.error(where=where, processor=name)
        self.processors[name] = DeclaredProcessor(
            name=name, body=body, reads=reads, policy=policy, where=where, cut=cut, views=views, stamped=stamped or {},
            state=state, engine=engine, iteration=iteration,
        )  # fmt: skip

    def sink(
        self,
        name: str,
        reads: "Body | Stream | str",
        to: "Endpoint | Sink",
        *,
        delivery: Delivery | str = Delivery.EXACTLY_ONCE,
    ) -> None:
        """Declare that the records of a processor are written to a topic or, from a batch, also to other targets.

        Args: reads: the processor (its function or its name). to: the target; for a batch also your own `Sink`.
            delivery: the promise to readers, see `Delivery`.
        """
        where = caller()
        check_name(name, "a sink", where)
        target = as_endpoint(to, where)
        if name in self.sinks:
            raise NAME_TAKEN.error(where=where, name=name)
        upstream = self._upstream(name, reads, where)
        if isinstance(target, EpochTopic):
            upstream = self._in_epochs(name, upstream, where)
        self.add_sink(name, upstream, target, delivery, where)

    def _in_epochs(self, sink: str, reads: str, where: SourceLocation) -> str:
        """Return the processor whose epochs a sink gets: `reads`, or a batch that copies what it reads or sends."""
        read = self.processors.get(reads)
        is_source = reads in {*self.sources, *self.lists, *self.patterns, *self.folders}
        if read is None and not is_source:
            return reads  # the plan reports it
        if read and (read.cut is not None or read.engine == "micro-batch" or isinstance(read.policy, Eager)):
            return reads
        copy, cut = f"{sink[:57]}-epochs", by_clock_or_rows("1 second", None, "batch", where)
        self.add_processor(copy, lambda rows: rows, reads=(reads,), policy=LogSends(), where=where, cut=cut)
        return copy

    def add_sink(self, name: str, reads: str, to: Endpoint, delivery: Delivery | str, where: SourceLocation) -> None:
        """Add a sink whose name and target were checked. Args: reads: the name of the processor."""
        self.sinks[name] = DeclaredSink(
            name=name, reads=reads, to=to, delivery=as_delivery(delivery, where), where=where
        )

    def _upstream(self, sink: str, reads: object, where: SourceLocation) -> str:
        if isinstance(reads, str):
            return reads
        if isinstance(reads, Stream):
            if isinstance(reads.node, SourceNode) and self.sources.get(reads.node.name) is reads.node:
                return reads.node.name
            if isinstance(reads.node, ProcessorNode) and reads.node.name in {
                *self.folders,
                *self.lists,
                *self.patterns,
            }:
                return reads.node.name
        elif name := getattr(reads, "__name__", None):
            return str(name)
        raise UPSTREAM_UNNAMED.error(where=where, sink=sink, name=type(reads).__name__)
