"""Internal: the topics that Falkirk makes for itself: what they are called, and that nothing in them expires."""

#: Kafka from version 4 on refuses records whose time is more than an hour ahead of the broker's clock: a machine whose
#: clock was set forward could write nothing any more. Older brokers take any time, and don't know the setting.
ANY_TIME = "message.timestamp.after.max.ms"
#: They keep everything until Falkirk says what may go: expiry by time would tear a hole.
KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", ANY_TIME: str(2**63 - 1)}


def internal_topic(application: str, identity: str, name: str) -> str:
    """Return the name of an internal topic of one home, whose identity is part of it, so that two homes never share
    one."""
    return f"falkirk.{application}.{identity}.{name}"
