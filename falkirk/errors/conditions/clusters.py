"""Conditions of sources on other clusters than the application's (`kafka_client/connection`, `declare/clusters`)."""

from falkirk.errors import DefinitionError, LogError
from falkirk.errors.condition import Condition

CLUSTER_NAME_INVALID = Condition(
    "CLUSTER_NAME_INVALID",
    DefinitionError,
    "{name!r} is not a name for a cluster.",
    hint="Use at most 64 letters, digits, dots, hyphens and underscores.",
)
CLUSTER_AMBIGUOUS = Condition(
    "CLUSTER_AMBIGUOUS",
    DefinitionError,
    "two sources have different connections to the cluster {cluster}.",
    hint="Use one fk.Connection for both, or give the connections different names.",
)
CLUSTER_MISPLACED = Condition(
    "CLUSTER_MISPLACED",
    DefinitionError,
    "fk.Kafka({topic!r}, kafka=…) is on another cluster, and Falkirk only reads such a topic.",
    hint='Write fk.EpochTopic("topic", kafka=…) for a sink on another cluster.',
)
CLUSTER_UNKNOWN = Condition(
    "CLUSTER_UNKNOWN",
    LogError,
    "no source of the application names the cluster {cluster}, on which topic {topic!r} is.",
    hint="Use the name or the address that the source had when it was first read.",
)
