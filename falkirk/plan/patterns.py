"""Patterns: finds the topics of the sources that have a pattern of names, before an application is planned.

The matching topics are a list, as if the user had written it. So the rest of Falkirk knows lists only. Each start
compares the pattern with the broker again, and what a home has recorded decides whether the list may grow
(`falkirk/runtime/spark/growth.py`).
"""

import copy
from collections.abc import Callable, Iterable
from typing import TypeGuard

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Endpoint, EpochTopic, Kafka
from falkirk.errors.conditions.plan import PATTERN_UNMATCHED
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import INTERNAL
from falkirk.recovery.decision_store import Store
from falkirk.theory.ids import cluster_of, topic_name

#: The end of the names that Falkirk chooses for topics with dead letters.
DEAD_LETTERS = ".dead-letters"


def with_topics(
    app: Application, names: Callable[[str], Iterable[str]], cluster: Connection | None = None
) -> Application:  # fmt: skip
    """Return the application with the topics of its patterns. `app` stays as it is.

    Args: names: returns the names of all topics of a cluster ("": the application's own); called only for the clusters
        of patterns. cluster: on which the application runs, if it is another one than declared.
    Raises: LogError: `PATTERN_UNMATCHED`; as `names`.
    """
    if cluster not in (None, app.kafka) and any(names_cluster(sink.to) for sink in app.sinks.values()):
        app = copy.copy(app)
        app.kafka = cluster
    if not app.patterns:
        return app
    found, listed = _copy(app), dict[str, list[str]]()
    for name, topic in app.patterns.items():
        if topic.cluster not in listed:
            listed[topic.cluster] = sorted(set(names(topic.cluster)))
        there = listed[topic.cluster]
        topics = matching_topics(app, topic, there)
        if not topics:
            known = [t for t in there if not _is_own(t)]
            raise PATTERN_UNMATCHED.error(where=topic.where, source=name, pattern=topic.topic, count=len(known))
        found.add_list(name, topic.of(topics))
    return found


def with_recorded_topics(app: Application, store: Store) -> Application:
    """Return the application with those topics of its patterns that its home has recorded, for a command."""
    if not app.patterns:
        return app
    records = [record for name in store.region_names() if (record := store.region(name)) is not None]
    known, found = {topic for record in records for topic in record.partitions}, _copy(app)
    for name, topic in app.patterns.items():
        there = sorted(topic_name(log) for log in known if cluster_of(log) == topic.cluster)
        found.add_list(name, topic.of(matching_topics(app, topic, there)))
    return found


def matching_topics(app: Application, topic: Kafka, there: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the topics that a source with a pattern reads, of those that exist on its cluster.

    It never reads a topic that the application writes, because it would read its own results without an end. This
    does not depend on whether the topic exists at the first start.
    """
    assert topic.pattern is not None, "only a source with a pattern has matches"
    written = () if topic.cluster else declared_outputs(app)
    return tuple(t for t in there if topic.pattern.fullmatch(t) and t not in written and not _is_own(t))


def declared_outputs(app: Application) -> frozenset[str]:
    """Return the topics that the user has declared for results and dead letters."""
    sinks = [to for sink in app.sinks.values() if (to := topic_of(sink.to, app)) is not None]
    sources = [*(source.topic for source in app.sources.values()), *app.patterns.values()]
    letters = [each.dead_letters for each in (*sinks, *sources) if each.dead_letters is not None]
    return frozenset([*(sink.topic for sink in sinks), *letters])


def names_cluster(to: Endpoint) -> TypeGuard[EpochTopic]:
    """Return whether a sink names a cluster. It may be that of the application."""
    return isinstance(to, EpochTopic) and to.kafka is not None


def topic_of(to: Endpoint, app: Application) -> Kafka | None:
    """Return the topic of a sink on the application's cluster; None: it writes to no topic there."""
    if isinstance(to, EpochTopic):
        return to.record if to.is_on(app.kafka) else None
    return to if isinstance(to, Kafka) else None


def shown_matches(app: Application) -> tuple[str, ...]:
    """Return a line about each source with a pattern, whose topics are known."""
    return tuple(
        f"source {name}: the pattern {topic.topic} matches {', '.join(_topics(app, name))}. Each start looks again."
        for name, topic in sorted(app.patterns.items())
    )


def _topics(app: Application, name: str) -> list[str]:
    return sorted(app.sources[part].topic.topic for part in app.lists[name])


def _is_own(topic: str) -> bool:
    """Return whether a topic belongs to Kafka itself, or to an application of Falkirk."""
    return topic.startswith(("__", INTERNAL)) or topic.endswith(DEAD_LETTERS)


def _copy(app: Application) -> Application:
    found = copy.copy(app)
    former = {part for name in app.patterns for part in app.lists.get(name, ())}
    found.sources = {name: source for name, source in app.sources.items() if name not in former}
    found.lists = dict(app.lists)
    return found
