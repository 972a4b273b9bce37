"""Events: recent restarts, recoveries and checkpoints, from differences of statuses and the coordinator's lines."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from falkirk.platform.terminal import one_line
from falkirk.recovery.decision_store.values import Recovery
from falkirk.recovery.protocol.down import stays_down

#: The greatest number of kept events, and of checkpoints among them.
EVENTS_MAX, CHECKPOINTS_MAX = 200, 60
_TEXT_MAX = 500


class Events:
    """The last events of an application. Args: clock: the time as Unix time."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self._checkpoints: deque[dict[str, Any]] = deque(maxlen=CHECKPOINTS_MAX)
        self._number = 0
        self._pid: object = None
        self._units: dict[str, Mapping[str, Any]] = {}
        #: By unit, the greatest number of dead letters so far. A new host does not know the number at first.
        self._letters: dict[str, int] = {}
        self._recovery: tuple[int, str] | None = None

    def note(self, text: str, kind: str = "note", unit: str = "", at_s: float | None = None) -> None:
        """Note an event."""
        self._number += 1
        shown = one_line(text)
        shown = shown if len(shown) <= _TEXT_MAX else shown[:_TEXT_MAX] + "…"
        at_s = self._clock() if at_s is None else at_s
        event = {"n": self._number, "at_s": at_s, "kind": kind, "unit": unit, "text": shown}
        (self._checkpoints if kind == "checkpoint" else self._events).append(event)

    def update(self, status: Mapping[str, Any]) -> None:
        """Take in a status of the host."""
        if (pid := status.get("pid")) != self._pid:
            if self._pid is not None:
                self.note(f"another Spark application runs (process {pid}); process {self._pid} has ended", "restart")
            self._pid = pid
        if isinstance(error := status.get("error"), Mapping):
            self._note_once(f"the Spark application ended: {error.get('text')}", "failure")
        for unit in status["regions"]:
            name, before = str(unit.get("name")), self._units.get(str(unit.get("name")))
            self._units[name] = unit
            if before is not None:
                self._compare(name, before, unit)

    def _compare(self, name: str, before: Mapping[str, Any], unit: Mapping[str, Any]) -> None:
        if unit.get("last_commit", -1) > before.get("last_commit", -1):
            self.note(f"checkpoint {unit['last_commit']}", "checkpoint", name)
        if unit.get("restarts", 0) > before.get("restarts", 0):
            self.note(f"restarted: {unit.get('detail') or 'it resumes from its checkpoint'}", "restart", name)
        elif unit.get("incarnation", 0) > before.get("incarnation", 0):
            self.note(f"incarnation {unit['incarnation']} began", "restart", name)
        if unit.get("condition") and not before.get("condition"):
            self.note(f"{stays_down(unit['condition'])}: {unit.get('detail')}", "failure", name)
        elif unit.get("state") != before.get("state"):
            self.note(f"{before.get('state')} → {unit.get('state')}", "state", name)
        if unit.get("twin") is not None and unit["twin"] != before.get("twin"):
            self.note("both queries run" if unit["twin"] else "one of its two queries runs", "state", name)
        if (now := unit.get("dead_letters")) is not None:
            self._note_letters(name, before.get("dead_letters"), now)
        if (dropped := unit.get("suppressed", 0) - before.get("suppressed", 0)) > 0 and before.get("suppressed") == 0:
            self.note(f"{dropped:,} replayed results were already published and were dropped", "replay", name)

    def _note_letters(self, name: str, before: int | None, now: int) -> None:
        if (letters := now - self._letters.setdefault(name, now if before is None else before)) > 0:
            self._letters[name] = now
            self.note(f"{letters:,} dead letter{'s' if letters > 1 else ''}", "letters", name)

    def _note_once(self, text: str, kind: str) -> None:
        if not self._events or self._events[-1]["text"][:_TEXT_MAX] != one_line(text)[:_TEXT_MAX]:
            self.note(text, kind)

    def take_recovery(self, recovery: Recovery | None) -> None:
        """Take in the newest recovery of the store."""
        if recovery is None or (recovery.recovery, recovery.state) == self._recovery:
            return
        self._recovery = recovery.recovery, recovery.state
        goes = sorted((n, p) for n, p in recovery.decided.items() if p is not None)
        places = ", ".join(f"{n} to {'the start' if p < 0 else p}" for n, p in goes[:8])
        more = f" and {len(goes) - 8} more" if len(goes) > 8 else ""
        took = "" if recovery.ended_at_s is None else f", in {recovery.ended_at_s - recovery.begun_at_s:.1f} s"
        text = f"recovery {recovery.recovery} ({recovery.reason}): {places}{more}; {recovery.state}{took}"
        self.note(text, "recovery", at_s=recovery.ended_at_s or recovery.begun_at_s)

    def shown(self) -> list[dict[str, Any]]:
        """Return the events, newest first."""
        found = [*self._events, *self._checkpoints]
        return sorted(found, key=lambda e: (e["at_s"], e["n"]), reverse=True)
