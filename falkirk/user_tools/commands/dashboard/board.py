"""Board: the content of the page, in named parts. Each part has a version, so a page gets only those that changed."""

import json
import secrets
import threading
from collections.abc import Iterator
from typing import Any


class Board:
    """The parts of the page. Any thread may publish a part, and any number of streams read them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: By name: the version at which the part changed last, and its content as JSON.
        self._parts: dict[str, tuple[int, str]] = {}
        #: Parts that only a new page gets: it follows them by itself.
        self._quiet: set[str] = set()
        self._version = 0
        self._readers = 0
        #: Versions of another process say nothing.
        self._process = secrets.token_hex(4)
        self._closed = False

    def publish(self, name: str, content: Any, *, quiet: bool = False) -> None:
        """Replace a part. If it is the same as before, nothing happens.

        Args: quiet: only a page without any part gets it.
        """
        text = json.dumps(content, separators=(",", ":"), default=str)
        with self._changed:
            if self._parts.get(name, (0, ""))[1] == text:
                return
            self._version += 1
            self._parts[name] = self._version, text
            if quiet:
                self._quiet.add(name)
            else:
                self._changed.notify_all()

    def part(self, name: str) -> Any:
        """Return the content of a part; None: there is none."""
        with self._changed:
            found = self._parts.get(name)
        return None if found is None else json.loads(found[1])

    @property
    def is_watched(self) -> bool:
        """Whether a page is open."""
        with self._changed:
            return self._readers > 0

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stream(self, last_id: str, *, beat_s: float, parts_max: int | None = None) -> Iterator[bytes]:
        """Yield the parts as server-sent events: those that changed after `last_id`, and then each change.

        A slow reader gets fewer versions, and nothing is kept for it.

        Args: last_id: the id of the last event that the page has; empty: it has none. beat_s: an empty comment is sent
            after this time without a change. parts_max: end after this number of parts, for tests.
        """
        seen, sent = self._known(last_id), 0
        with self._changed:
            self._readers += 1
        try:
            yield b"retry: 1000\n\n"
            while parts_max is None or sent < parts_max:
                with self._changed:
                    changed = self._after(seen)
                    if not changed and not self._closed:
                        self._changed.wait(beat_s)
                        changed = self._after(seen)
                    if self._closed:
                        return
                if not changed:
                    yield b": still here\n\n"
                for version, name, text in changed:
                    seen = version
                    sent += 1
                    yield f"id: {self._process}-{version}\nevent: {name}\ndata: {text}\n\n".encode()
        finally:
            with self._changed:
                self._readers -= 1

    def _known(self, last_id: str) -> int:
        process, _, version = last_id.partition("-")
        known = int(version) if process == self._process and version.isascii() and version.isdigit() else 0
        return min(known, self._version)

    def _after(self, seen: int) -> list[tuple[int, str, str]]:
        """Return the parts that changed after a version, in the order of their changes."""
        found = [(v, name, text) for name, (v, text) in self._parts.items() if v > seen]
        return sorted(f for f in found if seen == 0 or f[1] not in self._quiet)
