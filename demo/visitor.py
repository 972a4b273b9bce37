"""Visitor: a user who asks over HTTP, like curl, and repeats the request with the same id until there is an answer."""

import json
import shlex
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

#: Seconds: the timeout of a request, and the pause before the next one.
TIMEOUT_S, PAUSE_S = 30.0, 1.0


class Visitor:
    """Posts each question in a separate thread, because answers can take long.

    Args: home: the application's home, which has the address and the token. path: that of the source of requests.
    Attributes: told: the answers received over HTTP, by the question's id.
    """

    def __init__(self, home: Path, path: str) -> None:
        self._home, self._path = home, path
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.told: dict[str, dict[str, Any]] = {}

    def ask(self, question: dict[str, str]) -> None:
        """Post a question. Args: question: its `id`, `user` and `text`."""
        thread = threading.Thread(target=self._ask, args=(question,), name="demo-visitor", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ask(self, question: dict[str, str]) -> None:
        while not self._stopping.is_set():
            try:
                self.told[question["id"]] = self._post(question)
                return
            except (OSError, ValueError, urllib.error.URLError):  # being replaced; the id makes a repeat safe
                self._stopping.wait(PAUSE_S)

    def _post(self, question: dict[str, str]) -> dict[str, Any]:
        token = (self._home / "http.token").read_text().strip()
        request = urllib.request.Request(
            self.url(), data=json.dumps(question).encode(), headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            found: dict[str, Any] = json.load(reply)
            return found

    def url(self) -> str:
        """Return the address for questions."""
        return str(json.loads((self._home / "http.json").read_text())["url"]) + self._path

    def curl(self) -> str:
        """Return a shell command that posts a question."""
        body = json.dumps({"id": "curl-1", "user": "you", "text": "json parser"})
        token = shlex.quote(str(self._home / "http.token"))
        # curl reads the header from a pipe, because every user of the machine can read a process's arguments.
        return f"echo \"Authorization: Bearer $(cat {token})\" | curl -H @- -d '{body}' {self.url()}"

    def leave(self, timeout_s: float = 5.0) -> None:
        """Wait for outstanding answers, but not for long, and stop asking."""
        for thread in self._threads:
            thread.join(timeout_s)
        self._stopping.set()
