"""The visitor: a user who asks over HTTP, as by curl, and asks again under the same id until there is an answer."""

import json
import shlex
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

#: Seconds that one request may take, and between two of them.
TIMEOUT_S, PAUSE_S = 30.0, 1.0


class Visitor:
    """Posts questions, each in a thread of its own: the answer takes as long as it takes.

    Args: home: of the application, which holds the address and the token. path: of the source of requests.
    Attributes: told: the answers by the question's id, as they came over HTTP.
    """

    def __init__(self, home: Path, path: str) -> None:
        self._home, self._path = home, path
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.told: dict[str, dict[str, Any]] = {}

    def ask(self, question: dict[str, str]) -> None:
        """Post a question; who asked what, under which `id`."""
        thread = threading.Thread(target=self._ask, args=(question,), name="demo-visitor", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ask(self, question: dict[str, str]) -> None:
        while not self._stopping.is_set():
            try:
                self.told[question["id"]] = self._post(question)
                return
            except (OSError, ValueError, urllib.error.URLError):  # it is being brought back: the id makes it harmless
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
        """Return where questions are taken."""
        return str(json.loads((self._home / "http.json").read_text())["url"]) + self._path

    def curl(self) -> str:
        """Return how anybody can ask at a shell."""
        body = json.dumps({"id": "curl-1", "user": "you", "text": "json parser"})
        token = shlex.quote(str(self._home / "http.token"))
        # The header reaches curl by a pipe: every user of the machine can read the arguments of a process.
        return f"echo \"Authorization: Bearer $(cat {token})\" | curl -H @- -d '{body}' {self.url()}"

    def leave(self, timeout_s: float = 5.0) -> None:
        """Wait for what is still to come, but not for long, and ask no more."""
        for thread in self._threads:
            thread.join(timeout_s)
        self._stopping.set()
