"""Topics of a plan: those that Falkirk makes itself (hops, dead letters), and a check of those that the user names."""

from falkirk.errors import LogError
from falkirk.logs.topics import Topics
from falkirk.plan.region import Plan

#: A hop and its dead letters keep everything until Falkirk says what may go: expiry by time would tear a hole.
_KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


def prepare_topics(plan: Plan, topics: Topics, *, create_missing: bool = False, partitions: int = 2) -> None:
    """Create hops and dead-letter topics; check, or with `create_missing` create, sources and sinks.

    Raises: LogError: `TOPIC_MISSING` with the user's line; `PARTITION_COUNT_DIFFERS` for a hop; `BROKER_AWAY`.
    """
    for region in plan.regions:
        for topic, where in ((region.source.topic, region.source.topic.where), (region.output, region.where)):
            internal = region.hop is not None and topic is region.output
            if internal or (region.reads_hop and topic is region.source.topic):
                topics.create(topic.topic, plan.state_partitions, _KEEP)
            elif create_missing and not topics.exists(topic.topic):
                topics.create(topic.topic, partitions, {})
            else:
                _require(topics, topic.topic, where)
        if not topics.exists(region.dead_letter_topic):
            topics.create(region.dead_letter_topic, 1, _KEEP)


def _require(topics: Topics, topic: str, where: object) -> None:
    try:
        topics.facts(topic)
    except LogError as error:
        if error.condition == "TOPIC_MISSING":
            error.where = where
            error.hint = f"{error.hint} Create it, or add --create-topics."
        raise
