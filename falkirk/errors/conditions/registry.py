"""Conditions of schema registries, which `declare`, `kafka_client` and `plan` raise."""

from falkirk.errors import DefinitionError, HomeError, LogError
from falkirk.errors.condition import Condition

REGISTRY_INVALID = Condition(
    "REGISTRY_INVALID",
    DefinitionError,
    "the schema registry can't be used: {reason}.",
    hint='Write registry="http://host:8081", or fk.Registry("https://host", user="…", password="env:NAME").',
)
REGISTRY_INVALID_FILE = Condition(
    "REGISTRY_INVALID",
    DefinitionError,
    "the file of authorities of the schema registry can't be used: {path}: {reason}.",
    hint="Give a PEM file with certificates as ca_location=.",
)
REGISTRY_MISPLACED = Condition(
    "REGISTRY_MISPLACED",
    DefinitionError,
    "registry= does not fit here: {reason}.",
    hint='Topics with a registry have format="avro" or "json".',
)
REGISTRY_AWAY = Condition(
    "REGISTRY_AWAY",
    LogError,
    "the schema registry {url} gave no answer while {doing}: {reason}.",
    hint="Check that the registry is running and that this machine can reach it.",
    certainty="maybe",
)
REGISTRY_REFUSED = Condition(
    "REGISTRY_REFUSED",
    LogError,
    "the schema registry {url} refused a request while {doing}: {reason}.",
    hint="Check user and password, the rights of the user, and the compatibility rules of the subject.",
)
SCHEMA_UNREGISTERED = Condition(
    "SCHEMA_UNREGISTERED",
    LogError,
    "the schema registry {url} has no {kind} schema under subject {subject!r}.",
    hint="Register one, give schema=, or name the subject: fk.Registry(url, subject=…).",
)
SCHEMA_INVALID_JSON = Condition(
    "SCHEMA_INVALID",
    DefinitionError,
    "the schema of topic {topic!r} is not a JSON Schema: {reason}.",
    hint="A sink with a registry takes a JSON Schema as schema=, or the name of a file with it.",
)
SCHEMAS_UNRECORDED = Condition(
    "SCHEMAS_UNRECORDED",
    HomeError,
    "the home has no schema of subject {subject!r} yet.",
    hint="The application records it at its start.",
)
HOME_DAMAGED_SCHEMAS = Condition(
    "HOME_DAMAGED",
    HomeError,
    "the file with the schemas of a registry is damaged: {reason}.",
    hint="Restore it from a backup. Without it the newest schemas are used from now on: delete it to accept that.",
)
