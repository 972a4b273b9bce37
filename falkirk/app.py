"""App: one application of sources, processors and sinks, declared without Spark.

A processor is a function whose parameters name what it reads. Its body runs when the application is planned.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from falkirk.cut import ByTime, Cut, OnArrival
from falkirk.declared import Iteration, Latest, Processor, Sink, Stamped
from falkirk.declaring import by_clock_or_rows, by_time, check_name, marked, place_of, policy_misplaced
from falkirk.endpoints import Endpoint, Files, Kafka, as_endpoint, as_source
from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation, caller
from falkirk.logs.connection import Connection
from falkirk.logs.secret import Secret
from falkirk.policy import DEFAULT_POLICY, Delivery, Eager, FullHistory, Lazy, LogSends, Policy, duration_s
from falkirk.push.address import DEFAULT, as_address
from falkirk.push.endpoint import Http
from falkirk.push.tls import Tls
from falkirk.stream import Body, ProcessorNode, SourceNode, Stream, source_node

#: Each start reads so many checkpoints' files, of each live region.
HISTORY_MAX = 10_000


class App:
    """An application: declare sources, processors and sinks, then `run` it.

    Args:
        name: of the application: letters, digits, ``-`` and ``_``. It is part of the names of its internal topics.
        kafka: the broker, ``"host:port"`` or a `Connection` with SASL and TLS options. Left out, one is named on the
            command line (``--kafka``, or ``--local`` to try things out).
        home: folder for checkpoints and decisions; ``./.falkirk/<name>`` by default.
        store: the URL of a PostgreSQL database for the decisions, ``"postgresql://user:password@host/database"``; left
            out, they are in a file in the home. Several applications may share one.
        buffer_timeout: how long a record may wait for company between two steps of a live region; longer gives more
            throughput, shorter less latency.
        state_partitions: of each keyed step, and partitions of the hops that feed them.
        history: how many checkpoints of each region to keep beyond what a failure may ask for: to roll back to by hand,
            and in case that newer ones are damaged. What they need of hops and sources is kept with them. At most
            10,000: Spark keeps the states of as many, which takes disk.
        spare_checkpoints: how many of the newest checkpoints of a live region that is not deterministic may be damaged
            without published results being lost to a recovery. Results that wait for a checkpoint wait for as many
            more. 0 or 1 is usual.
        http: the address, ``"host:port"``, at which `Http` sources take requests; on port 0 any that is free, kept
            from start to start.
        http_tls: the certificate, as `Tls`, with which they take requests by https.
        http_token: what their clients have to show; the environment's FALKIRK_HTTP_TOKEN by default, and without that
            one that is made up and kept in the home. ``"env:NAME"`` takes it from there.
    """

    def __init__(
        self,
        name: str,
        *,
        kafka: "str | Connection | None" = None,
        home: str | Path | None = None,
        buffer_timeout: str | float = "1 ms",
        state_partitions: int = 2,
        history: int = 10,
        spare_checkpoints: int = 0,
        store: str | None = None,
        http: str = DEFAULT,
        http_token: str | None = None,
        http_tls: Tls | None = None,
    ) -> None:
        where = caller()
        check_name(name, "an application", where)
        for option, value, least, most in (
            ("state_partitions", state_partitions, 1, None),
            ("history", history, 0, HISTORY_MAX),
            ("spare_checkpoints", spare_checkpoints, 0, HISTORY_MAX),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= (most or value):
                limit = f" and at most {most:,}" if most else ""
                raise DefinitionError(
                    "OPTION_UNKNOWN",
                    f"{option}={value!r} is not a whole number of at least {least}{limit}.",
                    where=where,
                    hint="Each state partition takes a core slot in every keyed region; each checkpoint takes disk.",
                    option=option,
                    value=value,
                )
        duration_s(buffer_timeout)
        self.name = name
        self.kafka = Connection.of(kafka) if kafka is not None else None
        self.home = Path(home) if home is not None else Path(".falkirk") / name
        self.buffer_timeout = buffer_timeout
        self.state_partitions = state_partitions
        self.history = history
        self.spare_checkpoints = spare_checkpoints
        self.store = store
        self.http = as_address(http, where)
        self.http_tls = http_tls
        self.http_token = None if http_token is None else Secret(http_token)
        self.sources: dict[str, SourceNode] = {}
        self.pushed: dict[str, Http] = {}
        self.folders: dict[str, Files] = {}
        self.processors: dict[str, Processor] = {}
        self.sinks: dict[str, Sink] = {}

    def _claim(self, name: str, where: SourceLocation) -> None:
        for kind, taken in (("source", self.sources), ("source", self.folders), ("processor", self.processors)):
            if name in taken:
                raise DefinitionError(
                    "NAME_TAKEN",
                    f"there is already a {kind} named {name!r}.",
                    where=where,
                    hint="Give each source and processor a name of its own.",
                    name=name,
                )

    def source(self, name: str, from_: Kafka | Http | Files) -> Stream:
        """Declare what processors read under `name`: a topic, requests over HTTP, or a folder whose files batches
        read."""
        where = caller()
        self._claim(name, where)
        if isinstance(from_, Http):
            check_name(name, "a source of requests", where)
            from_.refuse_same_path(self.pushed.values())
            self.pushed[name] = from_
            from_ = from_.topic(self.name, "HOME", name)  # until the home is known
        found = as_source(from_, where)
        if isinstance(found, Files):
            self.folders[name] = found
            return Stream(ProcessorNode(name=name))
        self.sources[name] = source_node(name, found)
        return Stream(self.sources[name])

    def stream(
        self, policy: Policy | None = None, *, engine: Literal["live", "micro-batch"] | None = None
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a processor of streams; its parameters name what it reads.

        Args:
            policy: how it survives failure: `Lazy` (default), `Ephemeral`, `Snapshots`, `LogSends` or `Acknowledged`.
                With `Eager` it gets DataFrames, of whatever has come, see `batch`.
            engine: where it runs; left out, live if it can, else in micro-batches, and `falkirk plan` says why.
        """
        if engine not in (None, "live", "micro-batch"):
            raise DefinitionError(
                "OPTION_UNKNOWN",
                f"engine={engine!r} is not known.",
                where=caller(),
                hint="Use live or micro-batch, or leave it out.",
                option="engine",
                value=engine,
            )
        if policy is not None and not isinstance(policy, Policy):
            raise DefinitionError(
                "POLICY_UNKNOWN",
                f"{policy!r} is not a policy.",
                where=caller(),
                hint='Write @app.stream(fk.Lazy("10 seconds")) or @app.stream(fk.Ephemeral()).',
            )

        if isinstance(policy, Eager):
            return self._declare_batch(OnArrival(), policy, None)
        if isinstance(policy, FullHistory):
            raise policy_misplaced(policy, "a stream", "@app.batch()")

        def declare(body: Body) -> Body:
            reads = tuple(inspect.signature(body).parameters)
            where = place_of(body)
            self.add_processor(
                body.__name__, body, reads=reads, policy=policy or DEFAULT_POLICY, where=where, engine=engine
            )
            return body

        return declare

    def batch(
        self,
        *,
        every: str | float | None = None,
        rows: int | None = None,
        by: str | None = None,
        late: str | float | None = None,
        over: str | float | None = None,
        ahead: str | float | None = None,
        policy: Policy | None = None,
        state: str | None = None,
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a batch: a DataFrame job for each complete epoch of what it reads.

        Its parameters name what it reads, and get PySpark DataFrames with exactly that epoch's rows. It returns one; it
        may use all of PySpark. A parameter marked `Latest` gets the newest complete epoch of another batch.

        Args:
            every: an epoch is complete at each multiple of this duration, by the clock.
            rows: or with so many records; exactly one of the two is given.
            by: with `every`, not by the clock but by event time: the TIMESTAMP column of that name in all that it
                reads, but views. An epoch is then what happened in that time, and is complete when all partitions have
                come past it. late: how far back in time a partition's rows may go; what comes later than that, and its
                epoch is over, goes to the dead letters. over: an epoch is this long, a multiple of `every`: windows
                that slide. ahead: how far a row's time may be ahead of the clock, 1 minute by default. A row further
                ahead goes to the dead letters, so that it does not make all others late.
            policy: how it survives failure: `LogSends` (default), `FullHistory`, or with `state` also `Eager` (its
                default) and `Lazy`.
            state: the columns, as Spark DDL, of what it keeps from one epoch to the next. Then it has a parameter of
                its own name, and returns either its next state, which is its result as well, or ``(result, state)``.
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
        every: str | float | None = None,
        rows: int | None = None,
        rounds: int = 1_000,
        until: float = 0.0,
        sends: Literal["changes", "all"] = "changes",
        policy: Policy | None = None,
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a loop over collections that change, kept up to date epoch by epoch.

        Its parameters name what it reads, and get a `falkirk.differential.Collection` each, whose rows are added by
        each epoch; with a column `difference` they are added so many times, or, below 0, taken away. It returns a
        collection. A time is (epoch, round, …), with a round for each loop that is being gone through.

        Args:
            every, rows: when an epoch is complete, as of `batch`.
            rounds: of each loop in an epoch, at most, unless the loop says otherwise. What it ended with is told.
            until: a number in a loop that goes on where it was (`fixpoint`) is left as it is when it moves by no more.
                Where nothing would go by it, it is refused.
            sends: the changes of its result, with their `difference`; or all of it at each epoch, for those who read
                its newest epoch.
            policy: `Eager` (default): its state is saved at each epoch; or `Lazy`.
        """
        where, policy = caller(), policy or Eager()
        cut = by_clock_or_rows(every, rows, "iterate", where)
        if not isinstance(policy, Lazy | Eager):
            raise policy_misplaced(policy, "an iteration", "fk.Eager() or fk.Lazy()")
        if not isinstance(rounds, int) or rounds < 1 or until < 0 or sends not in ("changes", "all"):
            raise DefinitionError(
                "ITERATION_INVALID",
                f"rounds={rounds!r}, until={until!r}, sends={sends!r} is no iteration.",
                where=where,
                hint='Write @app.iterate(every="10 seconds", rounds=50); sends is "changes" or "all".',
            )
        return self._declare_batch(cut, policy, None, Iteration(rounds=rounds, until=float(until), sends=sends))

    def _declare_batch(
        self, cut: Cut | ByTime, policy: Policy, state: str | None, iteration: Iteration | None = None
    ) -> Callable[[Body], Body]:
        def declare(body: Body) -> Body:
            name, where = body.__name__, place_of(body)
            parameters = inspect.signature(body).parameters
            if (state is not None) != (name in parameters):
                raise DefinitionError(
                    "STATE_UNDECLARED",
                    f"batch {name!r} {'has no parameter for its' if state else 'reads its own, undeclared'} state.",
                    where=where,
                    hint=f'Write @app.batch(…, state="id STRING, n LONG") and def {name}(…, {name}).',
                    processor=name,
                )
            views, stamped = (marked(parameters, mark) for mark in (Latest, Stamped))
            stamps = dict.fromkeys(stamped, "stamp")
            if views and iteration is not None:
                raise DefinitionError(
                    "ITERATION_INVALID",
                    f"iteration {name!r} reads the newest epoch of {', '.join(sorted(views))}: it takes in what has "
                    "changed, and would add all rows of that again in each epoch.",
                    where=where,
                    hint="Let it read changes, rows with a column `difference`: what another iteration sends.",
                )
            if name in views or not parameters.keys() - views - {name}:
                raise DefinitionError(
                    "UPSTREAM_MISSING",
                    f"batch {name!r} reads nothing that has epochs.",
                    where=where,
                    hint="Name a source or a processor as a parameter that is not marked fk.Latest.",
                    processor=name,
                )
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
        """Declare a processor without a decorator: `body` gets one stream, or DataFrame, per name in `reads`."""
        where = where or caller()
        check_name(name, "a processor", where)
        self._claim(name, where)
        if not reads:
            raise DefinitionError(
                "UPSTREAM_MISSING",
                f"processor {name!r} reads nothing.",
                where=where,
                hint="Name a source or a processor as its parameter.",
                processor=name,
            )
        self.processors[name] = Processor(
            name=name, body=body, reads=reads, policy=policy, where=where, cut=cut, views=views, stamped=stamped or {},
            state=state, engine=engine, iteration=iteration,
        )  # fmt: skip

    def sink(
        self,
        name: str,
        reads: "Body | Stream | str",
        to: Endpoint,
        *,
        delivery: Delivery | str = Delivery.EXACTLY_ONCE,
    ) -> None:
        """Declare that the records of a processor are written to a topic or, of a batch, also elsewhere.

        Args: reads: the processor (its function or its name). to: where to. delivery: what readers are promised, see
            `Delivery`.
        """
        where = caller()
        check_name(name, "a sink", where)
        as_endpoint(to, where)
        if name in self.sinks:
            raise DefinitionError(
                "NAME_TAKEN",
                f"there is already a sink named {name!r}.",
                where=where,
                hint="Give each sink a name of its own.",
                name=name,
            )
        upstream = self._upstream(name, reads, where)
        self.sinks[name] = Sink(name=name, reads=upstream, to=to, delivery=as_delivery(delivery, where), where=where)

    def _upstream(self, sink: str, reads: object, where: SourceLocation) -> str:
        if isinstance(reads, str):
            return reads
        if isinstance(reads, Stream):
            if isinstance(reads.node, SourceNode) and self.sources.get(reads.node.name) is reads.node:
                return reads.node.name
            if isinstance(reads.node, ProcessorNode) and reads.node.name in self.folders:
                return reads.node.name
        elif name := getattr(reads, "__name__", None):
            return str(name)
        raise DefinitionError(
            "UPSTREAM_UNNAMED",
            f"sink {sink!r} reads {type(reads).__name__}, which is no source or processor of this application.",
            where=where,
            hint="Put the transformations into a function under @app.stream(), and pass that function.",
            sink=sink,
        )

    def run(self, **options: Any) -> None:
        """Run the application until it is stopped (Ctrl-C): the coordinator here, Spark in a process of its own.

        Args: options: as those of ``falkirk run``: ``kafka``, ``home``, ``master``, ``create_topics``, ``force``.
        """
        from falkirk.coordinator.supervise import run_application

        run_application(self, **options)


def as_delivery(value: Delivery | str, where: SourceLocation) -> Delivery:
    """Return the delivery of that name.

    Raises: DefinitionError: `DELIVERY_UNKNOWN`.
    """
    try:
        return Delivery(value)
    except ValueError:
        raise DefinitionError(
            "DELIVERY_UNKNOWN",
            f"delivery={value!r} is not known.",
            where=where,
            hint=f"Use one of {', '.join(d.value for d in Delivery)}.",
            delivery=str(value),
        ) from None
