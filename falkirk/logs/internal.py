"""Internal: the topics that Falkirk makes for itself: what they are called, and that nothing in them expires."""

#: Of records whose time is ahead of the broker's clock, Kafka from version 4 on refuses those that are ahead by more than
#: an hour. A machine whose clock was set forward could then write nothing any more. Older brokers don't know the setting.
ANY_TIME = "message.timestamp.after.max.ms"
#: They keep everything until Falkirk says what may go: expiry by time would tear a hole.
KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", ANY_TIME: str(2**63 - 1)}


def internal_topic(application: str, identity: str, name: str) -> str:
    """Return the name of an internal topic of one home, whose identity is part of it, so that two homes never share
    one."""
    return f"falkirk.{application}.{identity}.{name}"
