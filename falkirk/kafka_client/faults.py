"""Translates librdkafka's errors into Falkirk's, which say whether waiting can help."""

from typing import Any

from confluent_kafka import KafkaError

from falkirk.errors import LogError
from falkirk.errors.conditions.kafka_client import ACCESS_REFUSED, BROKER_AWAY, KAFKA_REFUSED, TOPIC_MISSING
from falkirk.kafka_client.connection import Connection

#: The client forgot a broker that the cluster no longer lists, and ended its requests. Older clients have no such name.
_DESTROY_BROKER = -137

#: The broker has not answered, or not yet: waiting may help, and the request may have taken effect.
_AWAY = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY,
        _DESTROY_BROKER,
        KafkaError._MSG_TIMED_OUT,  # a record was not acknowledged in time
        KafkaError._NOENT,  # no partition has a leader: the broker has just restarted
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,  # this client or the broker does not know the new leader yet
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


class ClientErrors:
    """Keeps the client's last own error: the error of a request that timed out does not show a wrong password."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _REFUSED or self.last is None or self.last.code() not in _REFUSED:
            self.last = error


def quiet_options(connection: Connection, errors: ClientErrors) -> dict[str, Any]:
    """Return the options of a client that reports to `errors`, not the terminal, and reconnects quickly."""
    return {
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        **connection.client_options(),
        "client.id": "falkirk",
        "allow.auto.create.topics": False,
        "log_level": 0,
        "error_cb": errors,
    }


def is_broker_away(error: KafkaError) -> bool:
    """Return whether `error` means that the broker has not answered, or not yet."""
    return error.code() in _AWAY


def is_missing(error: KafkaError) -> bool:
    """Return whether `error` means that the topic or partition does not exist."""
    return error.code() in _MISSING


def fault(error: KafkaError, doing: str, connection: Connection, errors: ClientErrors, topic: str = "") -> LogError:
    """Return the error to raise for `error`, which occurred while `doing`.

    Conditions: `ACCESS_REFUSED`, `BROKER_AWAY` (maybe), `TOPIC_MISSING`, and `KAFKA_REFUSED` for all others.
    """
    where = f"topic {topic} at {connection.bootstrap}" if topic else connection.bootstrap
    refusal = errors.last if errors.last is not None and errors.last.code() in _REFUSED else None
    if error.code() in _REFUSED or (is_broker_away(error) and refusal is not None):
        reason = error if error.code() in _REFUSED else refusal
        assert reason is not None
        return ACCESS_REFUSED.error(where=where, topic=topic, code=reason.name(), doing=doing, reason=reason.str())
    if is_broker_away(error):
        return away(doing, connection, topic, str(error.name()), errors)
    if is_missing(error):
        return missing(connection, topic)
    return KAFKA_REFUSED.error(where=where, topic=topic, code=error.name(), doing=doing, reason=error.str())


def away(doing: str, connection: Connection, topic: str, code: str, errors: ClientErrors) -> LogError:
    """Return the error for a broker that does not answer, with the client's last own error."""
    said = f" ({errors.last.str()})" if errors.last is not None else ""
    return BROKER_AWAY.error(
        where=f"topic {topic} at {connection.bootstrap}" if topic else connection.bootstrap,
        topic=topic,
        code=code,
        doing=doing,
        said=said,
    )


def missing(connection: Connection, topic: str, similar: tuple[str, ...] = ()) -> LogError:
    """Return the error for a topic that does not exist."""
    hint = f"Did you mean {' or '.join(similar)}?" if similar else "Create the topic, or check its name."
    return TOPIC_MISSING.error(where=connection.bootstrap, topic=topic, similar=similar, advice=hint)
