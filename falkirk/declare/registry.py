"""Registry: a schema registry, whose ids are in the values of a topic, as declared by the user.

A value in the wire format of such a registry (Confluent's) is a zero byte, the id of a schema in four bytes, and the
content. An id never changes its meaning, so that a replay reads the same columns.
"""

import base64
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from falkirk.errors.conditions.registry import REGISTRY_INVALID, REGISTRY_MISPLACED
from falkirk.errors.location import SourceLocation, caller
from falkirk.kafka_client.secret import Secret

#: The bytes before the content of a value in the wire format.
PREFIX_BYTES = 5


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry, as of Confluent, Karapace, Redpanda or Apicurio.

    Args:
        url: ``"http://host:8081"`` or ``"https://host"``, without a password.
        user, password: for basic authentication. ``password="env:NAME"`` reads an environment variable.
        subject: under which the registry has the schemas of the topic; by default ``<topic>-value``.
        ca_location: a PEM file of the authorities to trust; by default the system's own.
    """

    url: str
    user: str | None = None
    password: Secret | str | None = None
    subject: str | None = None
    ca_location: str | None = None
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        # This comes first, so that no later error can contain the plain text. The user's line may contain it too.
        object.__setattr__(self, "where", replace(self.where, text=""))
        if isinstance(self.password, str):
            object.__setattr__(self, "password", Secret(self.password))
        if (reason := self._mistake()) is not None:
            raise REGISTRY_INVALID.error(where=self.where, reason=reason)
        object.__setattr__(self, "url", self.url.rstrip("/"))

    def _mistake(self) -> str | None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except (ValueError, TypeError, AttributeError):
            return "its address is not a URL"
        if not known or parts.query or parts.fragment:
            return "its address is not a URL that begins with http:// or https:// and names a host"
        if "@" in parts.netloc:  # not shown: it may contain the password
            return "its address contains a user or a password; give them as user= and password="
        if (self.user is None) != (self.password is None):
            return "user= and password= are given together or not at all"
        return None

    @property
    def authorization(self) -> str | None:
        """The header that authenticates requests; it contains the password.

        Raises: DefinitionError: `SECRET_MISSING`.
        """
        if self.password is None:
            return None
        assert isinstance(self.password, Secret), "made in __post_init__"
        pair = f"{self.user}:{self.password.reveal()}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def subject_of(self, topic: str) -> str:
        """Return the subject with the schemas of a topic's values."""
        return self.subject or f"{topic}-value"

    def with_id(self, number: int) -> "Registered":
        """Return this registry with the id of the schema in which a sink writes."""
        of = {name: getattr(self, name) for name in ("url", "user", "password", "subject", "ca_location", "where")}
        return Registered(**of, number=number)

    @classmethod
    def of(cls, given: object, format: str, where: SourceLocation) -> Self | None:
        """Return the registry of a topic from its argument `registry`.

        Raises: DefinitionError: `REGISTRY_INVALID`, `REGISTRY_MISPLACED`.
        """
        if given is None or isinstance(given, cls):
            found = given
        elif isinstance(given, str):
            found = cls(given, where=where)
        else:
            raise REGISTRY_INVALID.error(where=where, reason=f"it is an object of class {type(given).__name__}")
        if found is not None and format not in ("avro", "json"):
            raise REGISTRY_MISPLACED.error(where=where, reason=f"values of format {format!r} have no schema")
        return found


@dataclass(frozen=True, slots=True)
class Registered(Registry):
    """A registry, and the id of the schema in which a sink writes. Args: number: the id."""

    number: int = 0
