"""Defines the names and settings of Falkirk's internal topics, in which no record expires."""

from falkirk.theory.ids import LogId

#: Kafka from version 4 on refuses records whose time is more than an hour ahead of the broker's clock. A machine whose
#: clock was set forward could not write any more. Older brokers accept any time, and don't know the setting.
ANY_TIME = "message.timestamp.after.max.ms"
#: The beginning of the names of all internal topics.
INTERNAL = "falkirk."
#: Internal topics keep every record until Falkirk deletes it: expiry by time would lose records.
KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", ANY_TIME: str(2**63 - 1)}


def internal_topic(application: str, identity: str, name: str) -> LogId:
    """Return the name of an internal topic of one home.

    It contains the home's identity, so two homes never share a topic.
    """
    return LogId(f"{INTERNAL}{application}.{identity}.{name}")
