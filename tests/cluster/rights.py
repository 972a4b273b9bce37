"""Rights in Kafka, and users that have exactly these: see docs/how-to/security.md."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # they are public

from falkirk.kafka_client.connection import Connection
from tests.cluster.secured import PASSWORD, Secured, right_of

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE, DELETE, SETTINGS = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS
TOPIC, GROUP, TRANSACTIONS = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A right of a user. Args: is_prefix: to all resources with this prefix."""

    kind: ResourceType
    name: str
    operation: AclOperation
    is_prefix: bool = False


def rights(kind: ResourceType, name: str, *operations: AclOperation, is_prefix: bool = False) -> list[Right]:
    return [Right(kind=kind, name=str(name), operation=o, is_prefix=is_prefix) for o in operations]


def login(broker: Secured, user: str, given: Sequence[Right], monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Return the connection of a new user with these rights alone."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    broker.add_user(user)
    broker.allow_all([right_of(r.kind, r.name, r.operation, prefix=r.is_prefix, user=user) for r in given])
    return Connection(
        broker.by_password,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        username=user,
        password="env:KAFKA_PASSWORD",
        ca_location=str(broker.ca),
        key_location=str(broker.client),
    )


def of_the_application(name: str, inputs: Sequence[str], outputs: Sequence[str], dead: Sequence[str]) -> list[Right]:
    """Return exactly the rights of the application in docs/how-to/security.md."""
    written = (READ, WRITE, DESCRIBE, SETTINGS)
    return [
        *(right for topic in inputs for right in rights(TOPIC, topic, READ, DESCRIBE, SETTINGS)),
        *(right for topic in outputs for right in rights(TOPIC, topic, *written)),
        *(right for topic in dead for right in rights(TOPIC, topic, *written, CREATE)),
        *rights(TOPIC, f"falkirk.{name}.", *written, CREATE, DELETE, is_prefix=True),
        *(
            right
            for group in ("falkirk", "spark-kafka-")
            for right in rights(GROUP, group, READ, DESCRIBE, is_prefix=True)
        ),
        *rights(TRANSACTIONS, f"falkirk.{name}.", WRITE, DESCRIBE, is_prefix=True),
    ]
