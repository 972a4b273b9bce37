"""Names of topics: checks those that the user declares, and makes the ids of the topics from them."""

import re
from collections.abc import Sequence

from falkirk.errors.conditions.declare import TOPIC_NAME_INVALID, TOPICS_INVALID
from falkirk.errors.location import SourceLocation
from falkirk.theory.ids import LogId


def topic_ids(given: object, cluster: str, where: SourceLocation) -> tuple[LogId, ...]:
    """Return the ids of the topics that a name or a list of names means.

    Args: given: names, or ids of this cluster. cluster: of the topics, as in ids; empty: the application's own.
    Raises: DefinitionError: `TOPIC_NAME_INVALID`, `TOPICS_INVALID`.
    """
    names = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    found = tuple(_id(name, cluster, where) for name in names)
    if not found or len(set(found)) < len(found):
        raise TOPICS_INVALID.error(where=where, topics=list(names))
    return found


def _id(given: object, cluster: str, where: SourceLocation) -> LogId:
    name = given.removesuffix(LogId.at("", cluster)) if cluster and isinstance(given, str) else given
    check_topic_name(name, where)
    return LogId.at(str(name), cluster) if cluster else LogId(str(name))


def check_topic_name(topic: object, where: SourceLocation) -> None:
    """Check that a text is a name that Kafka accepts. Raises: DefinitionError: `TOPIC_NAME_INVALID`."""
    if not isinstance(topic, str) or not re.fullmatch("[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
        raise TOPIC_NAME_INVALID.error(where=where, topic=topic)
