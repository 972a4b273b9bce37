"""Announced: a line when all processors run, and when they do again. A log of a service has no status line."""

from collections.abc import Mapping
from typing import Any

from falkirk.recovery.protocol.down import PASSING_CONDITIONS


class Announced:
    """The lines about the processors of one application. Args: name: of the application."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Whether all ran at the last status; None: no status had all of them running yet.
        self._all_run: bool | None = None

    def line(self, status: Mapping[str, Any]) -> str | None:
        """Return the line for a new status, if there is one. Those that failed for good do not count."""
        counted = [region for region in status["regions"] if not _failed_for_good(region)]
        all_run = bool(counted) and all(region["state"] == "running" for region in counted)
        if not all_run:
            self._all_run = None if self._all_run is None else False
            return None
        before, self._all_run = self._all_run, True
        if before:
            return None
        failed = [region["name"] for region in status["regions"] if _failed_for_good(region)]
        which = "all processors run" if not failed else f"all processors but {', '.join(failed)} run"
        return f"{self._name}: {which}{' again' if before is False else ''}"


def _failed_for_good(region: Mapping[str, Any]) -> bool:
    """Return whether a processor stays down. After some failures it is tried again."""
    return region["state"] == "failed" and region.get("condition") not in PASSING_CONDITIONS
