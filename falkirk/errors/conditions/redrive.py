"""Conditions of `redrive`."""

from falkirk.errors import LogError
from falkirk.errors.condition import Condition

REDRIVE_TIMED_OUT = Condition(
    "REDRIVE_TIMED_OUT",
    LogError,
    "Kafka aborted a transaction that was open for more than {transaction_s:g} s.",
    hint="Run falkirk redrive again once Kafka is faster. No record of this transaction was sent.",
)
REDRIVE_TAKEN_OVER = Condition(
    "REDRIVE_TAKEN_OVER",
    LogError,
    "another process sends this home's dead letters; this one's uncommitted records were not sent.",
    hint="Wait until the other process ends.",
)
