"""Schema registry: looks up and registers schemas by the registry's REST interface, before an application starts.

Records need none of this: `SchemaRegistry.java` fetches the schemas of their ids.
"""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from falkirk.errors import LogError
from falkirk.errors.conditions.registry import (
    REGISTRY_AWAY,
    REGISTRY_INVALID_FILE,
    REGISTRY_REFUSED,
    SCHEMA_UNREGISTERED,
)
from falkirk.errors.location import SourceLocation

#: Registries take a schema for one of Avro unless they are told otherwise.
SchemaKind = Literal["AVRO", "JSON"]
_TIMEOUT_S, _WAIT_S, _PAUSE_S = 5.0, 10.0, 0.5
#: One request may always take this long: a socket accepts no time-out of 0.
_TIMEOUT_MIN_S = 0.1
_TYPE = "application/vnd.schemaregistry.v1+json"
#: Answers that say something about the request, and not about the state of the registry.
_REFUSALS = (400, 401, 403, 404, 405, 409, 422)
#: The types of the fields that good answers have.
_FIELDS = {"id": int, "schema": str}
#: The registry's own codes of a 404: no such subject, version or schema.
_NOT_FOUND = (40401, 40402, 40403)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """A registered schema. Args: number: its id, which is in values."""

    subject: str
    number: int
    schema: str


class SchemaRegistry:
    """A schema registry. All methods retry for `wait_s`, and wait no longer for a registry that is silent.

    All raise LogError: `REGISTRY_AWAY` (maybe), `REGISTRY_REFUSED`. DefinitionError: `REGISTRY_INVALID`: the file of
    authorities can't be read.
    """

    def __init__(
        self, url: str, authorization: str | None, ca_location: str | None, where: SourceLocation,
        wait_s: float = _WAIT_S,
    ) -> None:  # fmt: skip
        self._url, self._where, self._wait_s = url, where, wait_s
        self._headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        if authorization is not None:
            self._headers["Authorization"] = authorization
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_context(ca_location, where)))
        self._opener = urllib.request.build_opener(*handlers)

    def latest(self, subject: str, kind: SchemaKind = "AVRO") -> SchemaVersion:
        """Return the newest schema of a subject. Raises: LogError: `SCHEMA_UNREGISTERED`."""
        doing = f"Falkirk looked up the newest schema of {subject!r}"
        status, found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest", None, doing)
        if status == 404 or (status == 200 and found.get("schemaType", "AVRO") != kind):
            raise SCHEMA_UNREGISTERED.error(where=self._where, url=self._url, kind=kind, subject=subject)
        self._require(status, found, doing)
        if found.get("references"):
            reason = "it refers to other schemas. Give the whole schema as schema="
            raise REGISTRY_REFUSED.error(where=self._where, url=self._url, doing=doing, reason=reason)
        return SchemaVersion(subject=subject, number=found["id"], schema=found["schema"])

    def register(self, subject: str, schema: str, kind: SchemaKind = "AVRO") -> SchemaVersion:
        """Register a schema under a subject, unless it is registered already, and return it with its id."""
        doing = f"Falkirk registered the schema of {subject!r}"
        body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        status, found = self._ask(f"/subjects/{quote(subject, safe='')}/versions", body, doing)
        self._require(status, found, doing)
        return SchemaVersion(subject=subject, number=found["id"], schema=schema)

    def schema_of(self, number: int) -> str:
        """Return the schema of an id. One that is not of Avro, or that refers to others, is `REGISTRY_REFUSED`."""
        doing = f"Falkirk looked up schema {number}"
        status, found = self._ask(f"/schemas/ids/{number}", None, doing, has="schema")
        self._require(status, found, doing)
        if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
            reason = "it is not of Avro, or refers to other schemas"
            raise REGISTRY_REFUSED.error(where=self._where, url=self._url, doing=doing, reason=reason)
        return str(found["schema"])

    def _require(self, status: int, found: dict[str, Any], doing: str) -> None:
        if status != 200:
            reason = f"HTTP {status} {str(found.get('message', ''))[:200]}".strip(" .")
            raise REGISTRY_REFUSED.error(where=self._where, url=self._url, doing=doing, reason=reason)

    def _ask(self, path: str, body: object, doing: str, has: str = "id") -> tuple[int, dict[str, Any]]:
        """Return the status and the content of an answer, once there is one that says something about the request.

        Args: has: each good answer has this field.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=self._headers)
        deadline_s = time.monotonic() + self._wait_s
        while True:
            try:
                left_s = max(_TIMEOUT_MIN_S, deadline_s - time.monotonic())
                return self._answer(request, has, min(_TIMEOUT_S, left_s))
            except (OSError, ValueError, http.client.HTTPException) as error:
                if time.monotonic() + _PAUSE_S > deadline_s:
                    raise self._away(error, doing) from None  # the cause may quote the header with the password
            time.sleep(_PAUSE_S)

    def _answer(self, request: urllib.request.Request, has: str, timeout_s: float) -> tuple[int, dict[str, Any]]:
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        if status != 200 and status not in _REFUSALS:
            raise ValueError(f"HTTP {status}")
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if status == 200 and not (isinstance(found, dict) and isinstance(found.get(has), _FIELDS[has])):
            raise ValueError(f"HTTP 200 without the {has} of a schema")
        if status == 404 and not (isinstance(found, dict) and found.get("error_code") in _NOT_FOUND):
            # Of a proxy, for a registry that is away, or of a registry at another path.
            raise ValueError("HTTP 404 without the code of a missing subject. Check the path of the address")
        return status, found if isinstance(found, dict) else {}

    def _away(self, error: Exception, doing: str) -> LogError:
        reason = getattr(error, "reason", None) or error
        return REGISTRY_AWAY.error(where=self._where, url=self._url, doing=doing, reason=f"{reason}"[:200])


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the password to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def authorities(ca_location: str | None, where: SourceLocation) -> str | None:
    """Return the content of a file of authorities.

    Raises: DefinitionError: `REGISTRY_INVALID`: it can't be read.
    """
    if ca_location is None:
        return None
    try:
        with open(ca_location, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a PEM file"
        raise REGISTRY_INVALID_FILE.error(where=where, path=ca_location, reason=reason) from error


def _context(ca_location: str | None, where: SourceLocation) -> ssl.SSLContext:
    text = authorities(ca_location, where)
    try:
        return ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise REGISTRY_INVALID_FILE.error(where=where, path=ca_location, reason="it is not a PEM file") from error
