"""Clusters: the connection of an application, which also knows the clusters of its distant sources."""

from falkirk.declare.application import Application
from falkirk.errors.conditions.clusters import CLUSTER_AMBIGUOUS
from falkirk.kafka_client.connection import Connection


def with_clusters(app: Application, own: Connection) -> Connection:
    """Return the connection to the application's cluster, which also knows those of its sources.

    Code that reads a topic gets its cluster from this connection, by the id of the topic.

    Raises: DefinitionError: `CLUSTER_AMBIGUOUS`: two connections have one name.
    """
    others: dict[str, Connection] = {}
    for topic in [*(source.topic for source in app.sources.values()), *app.patterns.values()]:
        if isinstance(topic.kafka, Connection) and others.setdefault(topic.cluster, topic.kafka) != topic.kafka:
            raise CLUSTER_AMBIGUOUS.error(where=topic.where, cluster=topic.cluster)
    return own.with_others(others)
