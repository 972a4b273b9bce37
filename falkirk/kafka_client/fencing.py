"""Takes transactional ids: from then on the broker refuses every other producer that uses them.

The broker aborts an open transaction of such a producer before `take_ids` returns. So no record of it becomes visible
to readers of committed records afterwards.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException, Producer

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.faults import ClientErrors, fault, quiet_options

#: The longest time for which a dead producer's open transaction lasts. Readers of committed records wait for its end,
#: unless a successor takes its id earlier. The broker looks for old transactions at intervals of 10 s by default.
TRANSACTION_TIMEOUT_S = 10.0
#: How long the broker may take.
_TIMEOUT_S = 30.0
#: How many ids are taken at once.
_AT_ONCE = 8


def take_ids(connection: Connection, ids: Sequence[str]) -> None:
    """Take transactional ids. Raises: LogError: `BROKER_AWAY` (maybe), `ACCESS_REFUSED`, `KAFKA_REFUSED`."""
    if not ids:
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(ids)), "falkirk-fencing") as pool:
        for each in [pool.submit(_take, connection, name) for name in ids]:
            each.result()


def _take(connection: Connection, name: str) -> None:
    errors = ClientErrors()
    producer = Producer(
        {
            **quiet_options(connection, errors),
            "transactional.id": name,
            "transaction.timeout.ms": round(TRANSACTION_TIMEOUT_S * 1000),
        }
    )
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            producer.init_transactions(max(0.1, deadline - time.monotonic()))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise fault(error.args[0], f"taking the transactional id {name}", connection, errors) from error
