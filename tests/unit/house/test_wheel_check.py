"""The check of the wheel reads the page of an application that ends and starts again, over connections that break."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import check_wheel


class Page(ThreadingHTTPServer):
    """A page whose region starts again within less time than a look takes: only a stream that is open shows it.

    Attributes: broken: answers that are no streams, which come first. streams: how many it has begun.
    """

    daemon_threads = True

    def __init__(self, *broken: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Stream)
        self.broken, self.streams, self.killed = list(broken), 0, threading.Event()


class _Stream(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page: Any = self.server
        if page.broken:
            self.wfile.write(page.broken.pop(0))
            return
        page.streams += 1
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        restarts = not page.killed.is_set()
        self._show("running")
        if restarts:
            while not page.killed.wait(0.02):
                self.wfile.write(b": still here\n\n")
            for state in ("starting", "running"):
                self._show(state)

    def _show(self, state: str) -> None:
        self.wfile.write(f'event: now\ndata: {{"units": {{"totals": {{"state": "{state}"}}}}}}\n\n'.encode())

    def handle(self) -> None:
        """Answer, unless the reader has gone."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _following(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[check_wheel.Tutorial]:
    """Yield a reader of the tutorial whose application has this page, and one process that can be killed."""
    threading.Thread(target=page.serve_forever, args=(0.02,), daemon=True).start()
    reader = check_wheel.Tutorial(tmp_path, tmp_path / "wheel", "python", {})
    (tmp_path / "token").write_text("t")
    reader.log.write_text(f"the dashboard is at http://127.0.0.1:{page.server_port}; its token is in token\n")
    reader.running = SimpleNamespace(poll=lambda: None)  # type: ignore[assignment]
    for name, value in {"BEGAN_S": 0.0, "PATIENCE_S": 5.0, "PAUSE_S": 0.01}.items():
        monkeypatch.setattr(check_wheel, name, value, raising=False)
    monkeypatch.setattr(reader, "hosts", lambda: [7])
    monkeypatch.setattr(os, "kill", lambda pid, number: page.killed.set())
    try:
        yield reader
    finally:
        page.killed.set()
        page.shutdown()
        page.server_close()


def test_a_short_restart_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a look each second opened a stream, and could miss it."""
    page = Page()
    with _following(page, tmp_path, monkeypatch) as reader:
        reader.kill()
    assert page.streams == 1


@pytest.mark.parametrize("broken", [b"", b"nonsense\r\n", b"HTTP/1.0 503 Service Unavailable\r\n\r\n"])
def test_a_connection_that_breaks_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    """Before, only some of these errors were handled, and the others ended the check."""
    page = Page(broken, broken)
    with _following(page, tmp_path, monkeypatch) as reader:
        reader.kill()
    assert not page.broken
    assert page.killed.is_set()


def test_a_state_that_never_comes_ends_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _following(Page(), tmp_path, monkeypatch) as reader:
        monkeypatch.setattr(check_wheel, "PATIENCE_S", 0.05)
        with pytest.raises(SystemExit, match="all regions are failed"):
            reader.await_all("failed", reader.shown())
