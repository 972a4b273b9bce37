"""Internal: the topics that Falkirk makes for itself: what they are called, and that nothing in them expires."""

#: They keep everything until Falkirk says what may go: expiry by time would tear a hole.
KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


def internal_topic(application: str, identity: str, name: str) -> str:
    """Return the name of an internal topic of one home, whose identity is part of it, so that two homes never share
    one."""
    return f"falkirk.{application}.{identity}.{name}"
