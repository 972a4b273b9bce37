"""Conditions of `user_tools/redrive`."""

from falkirk.errors import GuaranteeError, LogError
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
REDRIVE_REFUSED_EFFECT = Condition(
    "REDRIVE_REFUSED",
    GuaranteeError,
    "{count:,} of the dead letters must not be sent again: the input may have other results, or be in a state, and "
    "would count twice.",
    hint="Correct the function and use falkirk rollback.",
)
REDRIVE_REFUSED_REPLAY = Condition(
    "REDRIVE_REFUSED",
    GuaranteeError,
    "{count:,} of the dead letters must not be sent again: a replay may give results of the input, and these would "
    "count twice.",
    hint="Declare the functions with @fk.deterministic, if that is true, or use falkirk rollback.",
)
REDRIVE_REFUSED_CHECKPOINT = Condition(
    "REDRIVE_REFUSED",
    GuaranteeError,
    "{count:,} of the dead letters must not be sent again yet: no checkpoint covers the input, so a replay may give "
    "results of it, and these would count twice.",
    hint="Run falkirk redrive again after the next checkpoint of the region.",
)
REDRIVE_REFUSED_CLUSTER = Condition(
    "REDRIVE_REFUSED",
    GuaranteeError,
    "{count:,} of the dead letters must not be sent again: their records are in topics on other clusters, where "
    "Falkirk writes nothing.",
    hint="Send these records with a program of that cluster. The dead letters name their topics and offsets.",
)
