"""Site: the dashboard over HTTP: the page itself, the stream that feeds it, and the requests that it makes.

The page shows records of users, so all data needs the token of this process, also on loopback: other users of the
machine can reach that. A rollback also needs the page's own origin. The token is in the part of the link after `#`,
which browsers send nowhere; the page sends it in a header, which no other site can do.
"""

import hmac
import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from importlib.resources import files
from threading import BoundedSemaphore
from urllib.parse import urlsplit

from falkirk.errors import FalkirkError
from falkirk.runtime.supervision.web import Answer, HttpRequest, Site
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.consent import Consented
from falkirk.user_tools.commands.dashboard.watch import DashboardWatch, json_bytes

#: The greatest number of open pages.
STREAMS_MAX = 12
#: A stream without a change sends a sign of life after this time.
BEAT_S = 5.0
_KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Cross-Origin-Resource-Policy": "same-origin"}
_JSON = "application/json"


def page_files() -> dict[str, tuple[str, bytes]]:
    """Return the files of the page by path, each with its kind."""
    root = files("falkirk.user_tools.commands.dashboard") / "page"
    found: dict[str, tuple[str, bytes]] = {}
    for folder, prefix in ((root, "/"), (root / "vendor", "/vendor/")):
        for file in folder.iterdir():
            kind = _KINDS.get(f".{file.name.rpartition('.')[2]}")
            if file.is_file() and kind is not None:
                found[prefix + file.name] = kind, file.read_bytes()
    found["/"] = found.pop("/index.html")
    return found


class DashboardSite(Site):
    """The dashboard of one application.

    Args: token: that all requests for data must send; empty: none is right, until `open_with`.
    """

    slow = frozenset({"/api/rollback", "/api/preview", "/api/letters", "/api/failure"})

    def __init__(self, watch: DashboardWatch, board: Board, token: str = "") -> None:
        self._watch, self._board, self.token = watch, board, token
        self._is_open = False
        self._files = page_files()
        self._streams = BoundedSemaphore(STREAMS_MAX)
        self._api: Mapping[str, Callable[[HttpRequest], Answer]] = {
            "/api/stream": self._stream,
            "/api/letters": lambda request: _json(self._watch.letters()),
            "/api/failure": self._failure,
            "/api/preview": lambda request: _json(self._watch.preview(request.query.get("cut", ""))),
            "/api/rollback": self._roll_back,
        }

    def open_with(self, token: str, *, is_open: bool) -> None:
        """Answer requests that have this token from now on.

        Args: is_open: other machines may reach it. Otherwise requests must name this machine, so that the name of
            another site can't point to it.
        """
        self.token, self._is_open = token, is_open

    def paths(self) -> tuple[str, ...]:
        """See Site."""
        return ("/",)

    def answer(self, request: HttpRequest) -> Answer | None:
        """Answer with a file of the page, or with data."""
        if (file := self._files.get(request.path)) is not None:
            return Answer(kind=file[0], body=file[1], headers=_HEADERS) if request.reads else _refused(405, "only GET")
        serve = self._api.get(request.path)
        if serve is None:
            return None
        if (refusal := self._refusal(request)) is not None:
            return refusal
        try:
            return serve(request)
        except FalkirkError as error:
            content = {"condition": error.condition, "message": error.message, "hint": error.hint}
            return Answer(status=HTTPStatus.CONFLICT, kind=_JSON, body=json_bytes(content))

    def _refusal(self, request: HttpRequest) -> Answer | None:
        """Return the refusal of a request for data; None: it may pass."""
        changes = request.path == "/api/rollback"
        host = request.headers.get("host", "")
        if not self._is_open and not _is_loopback(host):
            return _refused(HTTPStatus.FORBIDDEN, "this page has another name")
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(errors="replace"), self.token.encode())
        if kind.lower() != "bearer" or not self.token or not right:
            return _refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        if changes and request.method != "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST", Allow="POST")
        if not changes and not request.reads:
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET", Allow="GET, HEAD")
        if changes and not _is_of_the_page(request, host):
            return _refused(HTTPStatus.FORBIDDEN, "the request is of another site")
        return None

    def _stream(self, request: HttpRequest) -> Answer:
        if request.method == "HEAD":
            return Answer(kind="text/event-stream")
        if not self._streams.acquire(blocking=False):
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
        parts = self._board.stream(request.headers.get("last-event-id", ""), beat_s=BEAT_S)
        return Answer(kind="text/event-stream", body=_Released(parts, self._streams))

    def _failure(self, request: HttpRequest) -> Answer:
        found = self._watch.failure(request.query.get("unit", ""))
        return _refused(HTTPStatus.NOT_FOUND, "no such unit") if found is None else _json(found)

    def _roll_back(self, request: HttpRequest) -> Answer:
        try:
            asked = json.loads(request.body)
            cut, force, shown = asked["cut"], asked["force"], Consented.of(asked["shown"])
            if isinstance(cut, bool) or not isinstance(cut, int) or not isinstance(force, bool):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            form = '{"cut": a number, "force": true or false, "shown": {"checkpoints": {}, "outside": {}, "at_s": 0.0}}'
            return _refused(HTTPStatus.BAD_REQUEST, f"send {form}")
        return _json(self._watch.roll_back(str(cut), force=force, shown=shown))


class _Released:
    """A stream that gives its place back when it ends, even if it has not begun."""

    def __init__(self, parts: Iterator[bytes], places: BoundedSemaphore) -> None:
        self._parts, self._places, self._open = parts, places, True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        """End the stream."""
        self._parts.close()  # type: ignore[attr-defined]  # it is a generator
        if self._open:
            self._open = False
            self._places.release()


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_of_the_page(request: HttpRequest, host: str) -> bool:
    """Return whether a request comes from this page: browsers name the site that makes a request."""
    origin, site = request.headers.get("origin", ""), request.headers.get("sec-fetch-site", "same-origin")
    return bool(host) and origin in (f"http://{host}", f"https://{host}") and site == "same-origin"


def _json(content: object) -> Answer:
    return Answer(kind=_JSON, body=json_bytes(content))


def _refused(status: int, text: str, **headers: str) -> Answer:
    return Answer(status=status, kind=_JSON, body=json_bytes({"message": text}), headers=headers)
