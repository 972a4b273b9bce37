"""Server: parses requests over HTTP and builds their responses."""

import asyncio
import hmac
import ipaddress
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pyspark.sql.types import StructType

from falkirk.declare.http import Http
from falkirk.http_source import fits
from falkirk.http_source.errors import RequestError, passing_error
from falkirk.http_source.registry import RequestEntry
from falkirk.http_source.service import RequestService

#: The largest size of a request, and of the value that is sent for it; below Kafka's default limit of a record.
BODY_BYTES_MAX = 512 << 10
ID_LENGTH_MAX = 200
#: A client must send the body of its request within this time.
BODY_S = 30.0
ID_HEADER = "Request-Id"


@dataclass(kw_only=True)
class Counter:
    """One source and its service. `schema` is known once the application is planned."""

    http: Http
    service: RequestService
    schema: StructType | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of a client (RFC 7240): whether it wants its answer, and how long it waits at most."""

    wants_answer: bool
    wait_s: float


def web_application(counters: Mapping[str, Counter], token: str, busy: set[object] | None = None) -> web.Application:
    """Return the web application that serves these sources by path.

    Args: busy: receives the connections on which a request is being served.
    """
    serving: set[object] = set() if busy is None else busy

    async def handle(request: web.Request) -> web.Response:
        extra: dict[str, str] = {}
        serving.add(request.protocol)
        try:
            return await _serve(request, counters, token, extra)
        except RequestError as error:
            return _refusal(error, extra)
        finally:
            serving.discard(request.protocol)

    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_route("*", "/{path:.*}", handle, expect_handler=_expect)
    return app


async def _serve(
    request: web.Request, counters: Mapping[str, Counter], token: str, extra: dict[str, str]
) -> web.Response:
    """Answer one request. Headers that the response carries in every case, even with an error, are put into `extra`."""
    _check_token(request, token)
    counter = counters.get(request.path)
    if counter is None:
        raise RequestError(
            "PATH_UNKNOWN",
            f"no source has the path {request.path}; the paths are {', '.join(sorted(counters))}.",
            status=404,
        )
    if request.method != "POST":
        extra["Allow"] = "POST"
        raise RequestError("METHOD_UNKNOWN", f"the method is {request.method}; only POST is allowed.", status=405)
    value = fits.parse_body(await _body(request))
    if counter.schema is None:
        raise passing_error("NOT_READY", "the application is starting.", retry_after_s=2)
    request_id = extra[ID_HEADER] = _identify(request, value, counter.http.id)
    encoded = fits.encode(value, counter.schema)
    if len(encoded) > BODY_BYTES_MAX:
        raise _too_large()
    wanted = preferences(request.headers.getall("Prefer", []), counter.http)
    entry = await counter.service.ask(
        request_id, encoded, wants_answer=wanted.wants_answer, timeout_s=wanted.wait_s, client=client_of(request.remote)
    )  # fmt: skip
    return _result(entry, wanted, extra)


def client_of(address: str | None) -> str:
    """Return the client to whose quota a request from an address counts.

    One machine has all loopback addresses, and usually all addresses of an IPv6 network of 64 bits.
    """
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return "loopback" if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return "loopback" if found.is_loopback else str(found)


def _check_token(request: web.Request, token: str) -> None:
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(errors="replace"), token.encode()):
        raise RequestError(
            "TOKEN_WRONG",
            "the token is missing or wrong.",
            status=401,
            hint="Send the header Authorization: Bearer TOKEN.",
        )


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large() from error
    except web.RequestPayloadError as error:
        raise RequestError("BODY_INVALID", "the body is not what its headers say.", status=400) from error
    except TimeoutError as error:
        raise RequestError("BODY_SLOW", f"the body had not arrived after {BODY_S:g} s.", status=408) from error


def _identify(request: web.Request, value: dict[str, Any], column: str) -> str:
    """Return the request's id: from its header, from its column, or random if it has neither.

    Put it into the column.
    """
    named, inside = request.headers.get(ID_HEADER), value.get(column)
    if named is not None and inside is not None and named != inside:
        raise _id_invalid(f"header {ID_HEADER} is {named!r}, but column {column} is {inside!r}")
    found = next((v for v in (named, inside) if v is not None), None)
    if found is None:
        found = secrets.token_hex(16)
    if not isinstance(found, str) or not 0 < len(found) <= ID_LENGTH_MAX or not found.isprintable():
        raise _id_invalid(f"{str(found)[:60]!r} is not an id: an id has 1 to {ID_LENGTH_MAX} printable characters")
    value[column] = found
    return found


def _id_invalid(message: str) -> RequestError:
    return RequestError("REQUEST_ID_INVALID", f"{message}.", status=400)


def preferences(headers: list[str], http: Http) -> Preferences:
    """Return the preferences in the Prefer headers, as far as the source can meet them; ignore unknown ones."""
    found: dict[str, str] = {}
    for part in ",".join(headers).split(","):
        name, _, value = part.partition(";")[0].partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"').lower())
    wait = found.get("wait", "")
    wait_s = min(float(wait), http.timeout_s) if wait.isascii() and wait.isdigit() else http.timeout_s
    return Preferences(
        wants_answer=http.answers is not None and found.get("return") != "minimal",
        wait_s=wait_s,
    )


async def _expect(request: web.Request) -> None:
    """Answer the header `Expect`. aiohttp would repeat an unknown value, which may be no text, and log a traceback."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # it is no part of the answer


def _result(entry: RequestEntry, wanted: Preferences, extra: dict[str, str]) -> web.Response:
    if wanted.wants_answer and entry.is_evicted:
        raise RequestError(
            "ANSWER_EVICTED",
            f"request {entry.id!r} has an answer that is no longer in memory; the request does not run again.",
            status=410,
            hint="Read the answer in the topic of answers.",
        )
    if wanted.wants_answer and entry.answer is not None:
        return web.Response(body=entry.answer, content_type="application/json", headers=extra)
    return web.Response(status=204, headers=extra)


def _too_large() -> RequestError:
    return RequestError("BODY_TOO_LARGE", f"the body has more than {BODY_BYTES_MAX:,} bytes.", status=413)


def _refusal(error: RequestError, extra: dict[str, str]) -> web.Response:
    headers = dict(extra)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = {"condition": error.condition, "message": error.message, "hint": error.hint}
    if ID_HEADER in extra:
        content["id"] = extra[ID_HEADER]
    return web.Response(
        status=error.status, text=json.dumps(content) + "\n", content_type="application/json", headers=headers
    )
