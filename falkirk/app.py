"""App: one application of sources, processors and sinks, declared without Spark.

A processor is a function whose parameters name what it reads. Its body runs when the application is planned.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falkirk.cut import ByClock, ByRows, Cut, OnArrival
from falkirk.endpoints import Endpoint, Kafka, as_endpoint, as_topic
from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation, caller
from falkirk.logs.connection import Connection
from falkirk.logs.secret import Secret
from falkirk.policy import Delivery, Eager, Ephemeral, FullHistory, Lazy, LogSends, Policy, duration_s
from falkirk.push.address import DEFAULT, as_address
from falkirk.push.endpoint import Http
from falkirk.stream import Body, SourceNode, Stream, source_node


class Latest:
    """Marks a parameter of a batch: ``def answers(queries, weights: fk.Latest)`` reads the newest complete epoch of
    `weights`. Which one it was is recorded before it is used, so that a replay reads the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A declared processor: its body, what it reads by name, its policy and where it was declared.

    Args: cut: when an epoch of a batch is complete; None: it is live. views: those of `reads` of which it reads the
        newest epoch. state: of a batch that reads what it returned at the epoch before, its columns as Spark DDL.
    """

    name: str
    body: Body
    reads: tuple[str, ...]
    policy: Policy
    where: SourceLocation
    cut: Cut | None = None
    views: frozenset[str] = frozenset()
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A declared output: the processor whose records it takes, where to, and what its readers are promised."""

    name: str
    reads: str
    to: Endpoint
    delivery: Delivery
    where: SourceLocation

    @property
    def topic(self) -> Kafka:
        """The topic of a sink that is one, as those of live processors are."""
        assert isinstance(self.to, Kafka), "a live processor writes topics"
        return self.to


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
            and in case that newer ones are damaged. What they need of hops and sources is kept with them.
        http: the address, ``"host:port"``, at which `Http` sources take requests; on port 0 any that is free, kept
            from start to start.
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
        store: str | None = None,
        http: str = DEFAULT,
        http_token: str | None = None,
    ) -> None:
        where = caller()
        _check_name(name, "an application", where)
        for option, value, least in (("state_partitions", state_partitions, 1), ("history", history, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise DefinitionError(
                    "OPTION_UNKNOWN",
                    f"{option}={value!r} is not a whole number of at least {least}.",
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
        self.store = store
        self.http = as_address(http, where)
        self.http_token = None if http_token is None else Secret(http_token)
        self.sources: dict[str, SourceNode] = {}
        self.pushed: dict[str, Http] = {}
        self.processors: dict[str, Processor] = {}
        self.sinks: dict[str, Sink] = {}

    def _claim(self, name: str, where: SourceLocation) -> None:
        for kind, taken in (("source", self.sources), ("processor", self.processors)):
            if name in taken:
                raise DefinitionError(
                    "NAME_TAKEN",
                    f"there is already a {kind} named {name!r}.",
                    where=where,
                    hint="Give each source and processor a name of its own.",
                    name=name,
                )

    def source(self, name: str, topic: Kafka | Http) -> Stream:
        """Declare a topic, or requests over HTTP, that processors read under `name`."""
        where = caller()
        self._claim(name, where)
        if isinstance(topic, Http):
            topic.refuse_same_path(self.pushed.values())
            self.pushed[name] = topic
            topic = topic.topic(self.name, "HOME", name)  # until the home is known
        as_topic(topic, where)
        self.sources[name] = source_node(name, topic)
        return Stream(self.sources[name])

    def stream(self, policy: Policy | None = None) -> Callable[[Body], Body]:
        """Declare the decorated function as a live processor; its parameters name what it reads.

        Args: policy: how it survives failure: `Lazy` (default) or `Ephemeral`.
        """
        if policy is not None and not isinstance(policy, Policy):
            raise DefinitionError(
                "POLICY_UNKNOWN",
                f"{policy!r} is not a policy.",
                where=caller(),
                hint='Write @app.stream(fk.Lazy("10 seconds")) or @app.stream(fk.Ephemeral()).',
            )

        if isinstance(policy, Eager):
            return self._declare_batch(OnArrival(), policy, None)
        if isinstance(policy, LogSends | FullHistory):
            raise _policy_misplaced(policy, "a stream", "@app.batch()")

        def declare(body: Body) -> Body:
            reads = tuple(inspect.signature(body).parameters)
            self.add_processor(body.__name__, body, reads=reads, policy=policy or Lazy(), where=_place_of(body))
            return body

        return declare

    def batch(
        self,
        *,
        every: str | float | None = None,
        rows: int | None = None,
        policy: Policy | None = None,
        state: str | None = None,
    ) -> Callable[[Body], Body]:
        """Declare the decorated function as a batch: a DataFrame job for each complete epoch of what it reads.

        Its parameters name what it reads, and get PySpark DataFrames with exactly that epoch's rows. It returns one; it
        may use all of PySpark. A parameter marked `Latest` gets the newest complete epoch of another batch.

        Args:
            every: an epoch is complete at each multiple of this duration, by the clock.
            rows: or with so many records; exactly one of the two is given.
            policy: how it survives failure: `LogSends` (default), `FullHistory`, or with `state` also `Eager` (its
                default) and `Lazy`.
            state: the columns, as Spark DDL, of what it keeps from one epoch to the next. Then it has a parameter of
                its own name, and returns either its next state, which is its result as well, or ``(result, state)``.
        """
        where = caller()
        if (every is None) == (rows is None) or (rows is not None and (not isinstance(rows, int) or rows < 1)):
            raise DefinitionError(
                "CUT_INVALID",
                f"every={every!r}, rows={rows!r} does not say when an epoch is complete.",
                where=where,
                hint='Write @app.batch(every="1 minute") or @app.batch(rows=10_000).',
            )
        if policy is None:
            policy = LogSends() if state is None else Eager()
        if not isinstance(policy, LogSends | FullHistory) and not (state and isinstance(policy, Lazy | Eager)):
            raise _policy_misplaced(policy, "a batch without state=", "fk.LogSends() or fk.FullHistory()")
        cut = ByRows(rows=rows) if rows is not None else ByClock(every_s=duration_s(every or 0))
        return self._declare_batch(cut, policy, state)

    def _declare_batch(self, cut: Cut, policy: Policy, state: str | None) -> Callable[[Body], Body]:
        def declare(body: Body) -> Body:
            name, where = body.__name__, _place_of(body)
            parameters = inspect.signature(body).parameters
            if (state is not None) != (name in parameters):
                raise DefinitionError(
                    "STATE_UNDECLARED",
                    f"batch {name!r} {'has no parameter for its' if state else 'reads its own, undeclared'} state.",
                    where=where,
                    hint=f'Write @app.batch(…, state="id STRING, n LONG") and def {name}(…, {name}).',
                    processor=name,
                )
            views = frozenset(n for n, p in parameters.items() if _is_view(p.annotation))
            if name in views or not parameters.keys() - views - {name}:
                raise DefinitionError(
                    "UPSTREAM_MISSING",
                    f"batch {name!r} reads nothing that has epochs.",
                    where=where,
                    hint="Name a source or a processor as a parameter that is not marked fk.Latest.",
                    processor=name,
                )
            self.add_processor(
                name, body, reads=tuple(parameters), policy=policy, where=where, cut=cut, views=views, state=state
            )
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
        cut: Cut | None = None,
        views: frozenset[str] = frozenset(),
        state: str | None = None,
    ) -> None:
        """Declare a processor without a decorator: `body` gets one stream, or DataFrame, per name in `reads`."""
        where = where or caller()
        _check_name(name, "a processor", where)
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
            name=name, body=body, reads=reads, policy=policy, where=where, cut=cut, views=views, state=state
        )

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
        _check_name(name, "a sink", where)
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

        Args: options: as those of ``falkirk run``: ``kafka``, ``home``, ``master``, ``create_topics``.
        """
        from falkirk.coordinator.supervise import run_application

        run_application(self, **options)


def _place_of(body: Body) -> SourceLocation:
    code = body.__code__
    text = f"def {body.__name__}{inspect.signature(body)}"
    return SourceLocation(file=code.co_filename, line=code.co_firstlineno, text=text)


def _is_view(annotation: object) -> bool:
    """Tell whether a parameter is marked `Latest`; under ``from __future__ import annotations`` it is a text."""
    return annotation is Latest or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "Latest")


def _policy_misplaced(policy: object, what: str, hint: str) -> DefinitionError:
    return DefinitionError(
        "POLICY_MISPLACED",
        f"{policy!r} is no policy for {what}.",
        where=caller(),
        hint=f"Use {hint}.",
        policy=policy,
    )


def _check_name(name: object, what: str, where: SourceLocation) -> None:
    """Refuse a name that could not be part of a topic's, a folder's and a client's name.

    Raises: DefinitionError: `NAME_INVALID`.
    """
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", name):
        raise DefinitionError(
            "NAME_INVALID",
            f"{name!r} can't be {what}'s name.",
            where=where,
            hint="Use letters, digits, '-' and '_', at most 64.",
            name=name,
        )


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


__all__ = ["App", "Ephemeral", "Latest", "Processor", "Sink", "as_delivery"]
