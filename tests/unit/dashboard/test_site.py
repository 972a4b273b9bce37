"""The site: who gets data, who may change something, and what an answer contains."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from falkirk.runtime.supervision.web import HttpRequest
from falkirk.user_tools.commands.dashboard import site as module
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.consent import Consented
from falkirk.user_tools.commands.dashboard.site import DashboardSite, page_files
from tests.unit.dashboard.recorded import HOSTILE, TOKEN, RecordedWatch, served, shop

SHOWN = {"checkpoints": {"sales": 0}, "outside": {"sales": 5}, "at_s": 7.5}
DATA = ("/api/stream", "/api/letters", "/api/failure?unit=sales", "/api/preview?cut=1")


class Page:
    """A page, and its server."""

    def __init__(self, url: str, watch: RecordedWatch, board: Board) -> None:
        self.host, self.watch, self.board = url.removeprefix("http://"), watch, board

    def ask(self, path: str, method: str = "GET", body: object = None, **headers: str) -> tuple[int, Any, Any]:
        """Return the status, the headers and the content. A header's underscores are hyphens."""
        given = {"Authorization": f"Bearer {TOKEN}"} | {n.replace("_", "-"): v for n, v in headers.items()}
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            sent = body if isinstance(body, bytes | None) else json.dumps(body)
            connection.request(method, path, body=sent, headers={n: v for n, v in given.items() if v})
            answer = connection.getresponse()
            if answer.headers["Content-Type"] == "text/event-stream":
                return answer.status, answer.headers, None if method == "HEAD" else answer.fp.readline()
            text = answer.read()
            return answer.status, answer.headers, json.loads(text) if text.startswith((b"{", b"[")) else text
        finally:
            connection.close()

    def roll_back(self, **headers: str) -> tuple[int, Any, Any]:
        asked = {"cut": 2, "force": False, "shown": SHOWN}
        return self.ask("/api/rollback", "POST", asked, **{"Origin": f"http://{self.host}", **headers})


@pytest.fixture(scope="module")
def shared() -> Iterator[Page]:
    with served(*shop()) as (server, watch, board):
        yield Page(server.url, watch, board)


@pytest.fixture
def page(shared: Page) -> Page:
    shared.watch.asked.clear()
    shared.watch.runs, shared.watch.is_outdated = True, False
    return shared


@pytest.mark.parametrize("path", DATA)
@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ²"]
)
def test_data_needs_the_token_also_on_loopback(page: Page, path: str, given: str) -> None:
    code, _, content = page.ask(path, Authorization=given.encode().decode("latin-1"))
    assert (code, content) == (401, {"message": "the token is missing or wrong"})


def test_no_token_is_right_before_there_is_one() -> None:
    site = DashboardSite(RecordedWatch(shop()[1]), Board())  # type: ignore[arg-type]
    for given in ("Bearer ", "Bearer"):
        headers = {"host": "localhost", "authorization": given}
        answer = site.answer(HttpRequest(method="GET", path="/api/letters", headers=headers))
        assert answer is not None
        assert answer.status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8350", "127.0.0.1.evil.example", "", "[", "10.0.0.1:80"]
)
def test_another_name_for_this_machine_is_refused(page: Page, host: str) -> None:
    assert page.ask("/api/letters", Host=host or " ")[0] == 403


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8350", "shop.localhost"])
def test_this_machine_has_several_names(page: Page, host: str) -> None:
    assert page.ask("/api/letters", Host=host)[0] == 200


def test_an_open_server_may_have_any_name() -> None:
    site = DashboardSite(RecordedWatch(shop()[1]), Board())  # type: ignore[arg-type]
    site.open_with(TOKEN, is_open=True)
    headers = {"host": "shop.example", "authorization": f"Bearer {TOKEN}"}
    answer = site.answer(HttpRequest(method="GET", path="/api/letters", headers=headers))
    assert answer is not None
    assert answer.status == 200


def test_a_rollback_of_the_page_is_asked_for(page: Page) -> None:
    assert page.roll_back()[::2] == (200, {"goes": {"sales": 0}})
    assert page.roll_back(Sec_Fetch_Site="same-origin")[0] == 200
    assert page.watch.asked == [("2", False)] * 2
    assert page.watch.shown == Consented(checkpoints={"sales": 0}, outside={"sales": 5}, at_s=7.5)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ""}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Sec_Fetch_Site": "none"},
        {"Authorization": ""}, {"Authorization": "Bearer x"}, {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)  # fmt: skip
def test_a_rollback_of_another_site_is_refused(page: Page, headers: dict[str, str]) -> None:
    assert page.roll_back(**headers)[0] in (401, 403)
    assert not page.watch.asked


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"cut": 1}', b'{"cut": "1", "force": false}', b'{"cut": true, "force": false}',
     b'{"cut": 1, "force": 1}', b'{"cut": 1.5, "force": false}', b"\xff", b'{"cut": 1, "force": true}',
     b'{"cut": 1, "force": true, "shown": 7}',
     b'{"cut": 1, "force": true, "shown": {"checkpoints": {}, "outside": {}}}',
     b'{"cut": 1, "force": true, "shown": {"checkpoints": {"sales": true}, "outside": {}, "at_s": 1}}',
     b'{"cut": 1, "force": true, "shown": {"checkpoints": {}, "outside": [], "at_s": 1}}',
     b'{"cut": 1, "force": true, "shown": {"checkpoints": {}, "outside": {}, "at_s": "1"}}'],
)  # fmt: skip
def test_a_request_of_another_form_is_refused(page: Page, body: bytes) -> None:
    code, _, content = page.ask("/api/rollback", "POST", body, Origin=f"http://{page.host}")
    assert (code, "message" in content) == (400, True)
    assert not page.watch.asked


def test_what_only_reads_is_only_got_and_what_changes_is_only_posted(page: Page) -> None:
    code, headers, _ = page.ask("/api/rollback")
    assert (code, headers["Allow"]) == (405, "POST")
    for path in (*DATA, "/", "/app.js"):
        assert page.ask(path, "POST", b"")[0] == 405
    assert page.ask("/api/rollback", "POST", b"x", Content_Length="70000")[0] == 413
    assert page.ask("/api/stream", "HEAD")[0] == 200
    assert not page.watch.asked


def test_an_error_says_what_to_do(page: Page) -> None:
    page.watch.runs = False
    code, _, content = page.roll_back()
    assert (code, content["condition"]) == (409, "ROLLBACK_NEEDS_COMMAND")
    assert "falkirk rollback" in content["hint"]
    page.watch.runs, page.watch.is_outdated = True, True
    code, _, content = page.roll_back()
    assert (code, content["condition"]) == (409, "PREVIEW_OUTDATED")
    assert page.ask("/api/failure?unit=unknown")[0] == 404
    assert page.ask("/api/failure")[0] == 404


def test_no_answer_can_load_or_be_loaded_by_another_site(page: Page) -> None:
    for path in ("/", "/app.js", "/style.css", "/vendor/preact.mjs", "/icon.svg"):
        code, headers, _ = page.ask(path, Authorization="")
        assert code == 200
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
    assert page.ask("/api/letters")[1]["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "path", ["/page/app.js", "/../site.py", "/vendor/../app.js", "/%2e%2e/site.py", "/vendor/", "/index.html", "/x",
             "/vendor/vendored.json", "/api/"],
)  # fmt: skip
def test_only_files_of_the_page_are_served(page: Page, path: str) -> None:
    assert page.ask(path)[0] == 404


@pytest.mark.parametrize("path", [f"/api/preview?{'cut=1&' * 30}", "/api/letters?["])
def test_a_malformed_address_is_answered(page: Page, path: str) -> None:
    assert page.ask(path)[0] in (200, 400)


def test_the_page_itself_names_no_other_site() -> None:
    for path, (kind, content) in page_files().items():
        if not path.startswith("/vendor/"):
            text = content.decode()
            assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path
            assert "innerHTML" not in text
            assert kind.split(";")[0] in ("text/html", "text/css", "text/javascript", "image/svg+xml")
    page = page_files()["/"][1].decode()
    assert " style=" not in page
    assert "<script>" not in page


def test_payloads_are_json_and_not_html(page: Page) -> None:
    code, headers, content = page.ask("/api/letters")
    assert (code, headers["Content-Type"], content[0]["payload"]) == (200, "application/json", HOSTILE)


def test_so_many_pages_may_be_open(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAMS_MAX", 2)
    site = DashboardSite(page.watch, page.board)  # type: ignore[arg-type]
    site.open_with(TOKEN, is_open=False)
    asked = HttpRequest(
        method="GET", path="/api/stream", headers={"host": "localhost", "authorization": f"Bearer {TOKEN}"}
    )

    def status() -> int:
        answer = site.answer(asked)
        assert answer is not None
        streams.append(answer.body)
        return answer.status

    streams: list[Any] = []
    assert [status() for _ in range(3)] == [200, 200, 503]
    streams[0].close()  # it has not begun
    streams[0].close()
    assert [status() for _ in range(2)] == [200, 503]
