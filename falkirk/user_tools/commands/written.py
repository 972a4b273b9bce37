"""Written: which unit of an application writes a topic, as commands need it without a plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.plan.region import BatchLogs, RegionLogs
from falkirk.plan.shape import Shape
from falkirk.theory.ids import LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The unit that writes a topic.

    Args:
        unit: its name. processors: it runs these, each with the line of its declaration.
        region, batch: the unit. held: the topic has copies of this log. Exactly one of the three is not None.
        is_dead_letters: the topic has its dead letters. is_output: the topic is for users, dead letters included.
        keys: the columns of a sink's key.
    """

    unit: str
    processors: tuple[dict[str, Any], ...]
    region: RegionLogs | None = None
    batch: BatchLogs | None = None
    held: LogId | None = None
    is_dead_letters: bool = False
    is_output: bool = True
    keys: tuple[str, ...] = ()


def writers_of(app: Application, shape: Shape) -> dict[LogId, Writer]:
    """Return the writer of each topic that an application has written, by topic; those for users come first."""
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
    return found | {topic: writer for topic, writer in inside.items() if topic not in found}


def topic_named(app: Application, writers: Mapping[LogId, Writer], name: str) -> LogId | None:
    """Return a topic that an application reads or writes, by its own name or that of a source or sink; None: none."""
    topics = [*writers, *(source.topic.log for source in app.sources.values())]
    if name in topics:
        return LogId(name)
    if name in app.sources:
        return app.sources[name].topic.log
    to = app.sinks[name].to if name in app.sinks else None
    return to.log if isinstance(to, Kafka) else None


def processors_of(app: Application, shape: Shape, unit: str) -> tuple[dict[str, Any], ...]:
    """Return the processors of a unit with the lines of their declarations."""
    return tuple(
        {"name": name, "declared": str(app.processors[name].where) if name in app.processors else None}
        for name in shape.processors.get(unit, ())
    )
