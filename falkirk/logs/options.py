"""Client options that the user may pass on, and those that the guarantee rests on."""

from collections.abc import Mapping

#: Options that the user may pass on: the Java client's name and librdkafka's, or None where only Spark's
#: producer has it.
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

_PREFIX = "what a topic has accepted must be a prefix of what was sent to it"
_READING = "Falkirk decides itself where and what it reads"
#: Options that the guarantee rests on, and what each would break.
_OURS: Mapping[str, str] = {
    "acks": _PREFIX,
    "auto.offset.reset": _READING,
    "client.id": "the fence finds a producer of an earlier incarnation by it",
    "delivery.timeout.ms": _PREFIX,
    "enable.auto.commit": _READING,
    "enable.idempotence": _PREFIX,
    "group.id": _READING,
    "group.instance.id": _READING,
    "interceptor.classes": "records are released as they are",
    "isolation.level": _READING,
    "key.serializer": "records are released as they are",
    "max.block.ms": "a broker that is away must be waited for, not given up",
    "max.in.flight.requests.per.connection": _PREFIX,
    "message.send.max.retries": _PREFIX,
    "message.timeout.ms": _PREFIX,
    "partitioner.class": "a replayed record must go to the partition that it went to before",
    "retries": _PREFIX,
    "transactional.id": "the barrier takes the place of transactions",
    "transaction.timeout.ms": "the barrier takes the place of transactions",
    "value.serializer": "records are released as they are",
}


def refuse(name: str, value: str) -> tuple[str, str, str] | None:
    """Return (condition, message, hint) when the user may not set the option `name` so, otherwise None."""
    if name in _OURS:
        return "OPTION_IS_OURS", f"the client option {name} cannot be set: {_OURS[name]}.", "Leave it out."
    if name not in ALLOWED:
        secured = name.startswith(("sasl.", "ssl.", "security.", "bootstrap."))
        why = "the connection has an argument for it" if secured else "nobody has shown it harmless"
        return (
            "CLIENT_OPTION_REFUSED",
            f"the client option {name} is not passed on: {why}.",
            f"These are: {', '.join(ALLOWED)}.",
        )
    if name.endswith((".ms", ".size")) and not (value.isascii() and value.isdigit()):
        return "CLIENT_OPTION_INVALID", f"the client option {name} has to be a whole number.", ""
    return None
