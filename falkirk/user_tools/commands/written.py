"""Written: which unit of an application writes a topic, as commands need it without a plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falkirk.declare.application import Application
from falkirk.declare.endpoints import EpochTopic, Kafka
from falkirk.plan.region import BatchLogs, RegionLogs
from falkirk.plan.shape import Shape
from falkirk.theory.ids import LogId

#: Before the name of a sink: its topic, if several clusters have topics of that name.
OF_SINK = "sink:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The unit that writes a topic.

    Args:
        unit: its name. processors: it runs these, each with the line of its declaration.
        region, batch: the unit. held: the topic has copies of this log. Exactly one of the three is not None.
        is_dead_letters: the topic has its dead letters. is_output: the topic is for users, dead letters included.
        keys: the columns of a sink's key. sink: its name, if it is an `fk.EpochTopic`.
    """

    unit: str
    processors: tuple[dict[str, Any], ...]
    region: RegionLogs | None = None
    batch: BatchLogs | None = None
    held: LogId | None = None
    is_dead_letters: bool = False
    is_output: bool = True
    keys: tuple[str, ...] = ()
    sink: str | None = None


def writers_of(app: Application, shape: Shape) -> dict[LogId, Writer]:
    """Return the writer of each topic that an application has written, by topic; those for users come first.

    The topic of an `fk.EpochTopic` has the name `sink:NAME` if the application also uses another topic of its name.
    """
    found: dict[LogId, Writer] = {}
    inside: dict[LogId, Writer] = {}
    keys = {LogId(s.to.topic): s.to.keys for s in app.sinks.values() if isinstance(s.to, Kafka)}
    for region in shape.regions:
        who = processors_of(app, shape, region.name)
        is_output = region.output in keys
        to = found if is_output else inside
        to[region.output] = Writer(
            unit=region.name, processors=who, region=region, is_output=is_output, keys=keys.get(region.output, ())
        )
        if (sink := shape.layout.held.get(region.output)) is not None:
            topic = LogId(sink)
            found[topic] = Writer(unit=region.name, processors=who, held=region.output, keys=keys.get(topic, ()))
        inside[region.dead_letters] = Writer(unit=region.name, processors=who, region=region, is_dead_letters=True)
    for batch in shape.batches:
        who = processors_of(app, shape, batch.name)
        for name in batch.sinks:
            to_ = app.sinks[name].to if name in app.sinks else None
            if isinstance(to_, Kafka):
                found[to_.log] = Writer(unit=batch.name, processors=who, batch=batch, keys=to_.keys)
        if batch.dead_letters is not None:
            inside[batch.dead_letters] = Writer(unit=batch.name, processors=who, batch=batch, is_dead_letters=True)
    found |= {topic: writer for topic, writer in inside.items() if topic not in found}
    return _by_epochs(app, shape, found) | found


def _by_epochs(app: Application, shape: Shape, others: Mapping[LogId, Writer]) -> dict[LogId, Writer]:
    found: dict[LogId, Writer] = {}
    taken = {*others, *(source.topic.log for source in app.sources.values())}
    for batch in shape.batches:
        for name in batch.sinks:
            to = app.sinks[name].to if name in app.sinks else None
            if isinstance(to, EpochTopic):
                log = LogId(to.topic)
                if log in taken:
                    log = LogId(f"{OF_SINK}{name}")
                taken.add(log)
                who = processors_of(app, shape, batch.name)
                found[log] = Writer(unit=batch.name, processors=who, batch=batch, keys=to.keys, sink=name)
    return found


def topic_named(app: Application, writers: Mapping[LogId, Writer], name: str) -> LogId | None:
    """Return a topic that an application reads or writes, by its own name or that of a source or sink; None: none."""
    topics = [*writers, *(source.topic.log for source in app.sources.values())]
    if name in topics:
        return LogId(name)
    if name in app.sources:
        return app.sources[name].topic.log
    sink = name.removeprefix(OF_SINK)
    to = app.sinks[sink].to if sink in app.sinks else None
    by_epochs = next((topic for topic, writer in writers.items() if writer.sink == sink), None)
    return to.log if isinstance(to, Kafka) else by_epochs


def processors_of(app: Application, shape: Shape, unit: str) -> tuple[dict[str, Any], ...]:
    """Return the processors of a unit with the lines of their declarations."""
    return tuple(
        {"name": name, "declared": str(app.processors[name].where) if name in app.processors else None}
        for name in shape.processors.get(unit, ())
    )
