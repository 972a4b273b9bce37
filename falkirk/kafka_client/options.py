"""Lists the client options that the user may set, and those on which the guarantee rests."""

from collections.abc import Mapping

#: Options that the user may set: the Java client's name and librdkafka's; None if only Spark's producer has the option.
ALLOWED: Mapping[str, str | None] = {
    "batch.size": None,
    "client.dns.lookup": "client.dns.lookup",
    "client.rack": "client.rack",
    "compression.type": None,
    "connections.max.idle.ms": "connections.max.idle.ms",
    "linger.ms": None,
    "metadata.max.age.ms": "metadata.max.age.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}

_PREFIX = "the records that a topic has accepted must be a prefix of the sent ones"
_READING = "Falkirk itself decides which records it reads"
#: Options on which the guarantee rests, with the reason for each.
_OURS: Mapping[str, str] = {
    "acks": _PREFIX,
    "auto.offset.reset": _READING,
    "client.id": "the fence uses it to find producers of earlier incarnations",
    "delivery.timeout.ms": _PREFIX,
    "enable.auto.commit": _READING,
    "enable.idempotence": _PREFIX,
    "group.id": _READING,
    "group.instance.id": _READING,
    "interceptor.classes": "records must be published unchanged",
    "isolation.level": _READING,
    "key.serializer": "records must be published unchanged",
    "max.block.ms": "Falkirk must wait for a broker that is away, not give up",
    "max.in.flight.requests.per.connection": _PREFIX,
    "message.send.max.retries": _PREFIX,
    "message.timeout.ms": _PREFIX,
    "partitioner.class": "a replayed record must go to the same partition as before",
    "retries": _PREFIX,
    "transactional.id": "the barrier replaces transactions",
    "transaction.timeout.ms": "the barrier replaces transactions",
    "value.serializer": "records must be published unchanged",
}


def refuse(name: str, value: str) -> tuple[str, str, str] | None:
    """Return (condition, message, hint) if the user may not set the option `name` to `value`, otherwise None."""
    if name in _OURS:
        return "OPTION_IS_OURS", f"the client option {name} cannot be set: {_OURS[name]}.", "Remove the option."
    if name not in ALLOWED:
        secured = name.startswith(("sasl.", "ssl.", "security.", "bootstrap."))
        why = "the connection has an argument for it" if secured else "nobody has shown that it is safe"
        return (
            "CLIENT_OPTION_REFUSED",
            f"the client option {name} is not allowed: {why}.",
            f"Use only: {', '.join(ALLOWED)}.",
        )
    if name.endswith((".ms", ".size")) and not (value.isascii() and value.isdigit()):
        return "CLIENT_OPTION_INVALID", f"the client option {name} must be a whole number.", ""
    return None
