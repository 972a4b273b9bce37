"""The Python processes of one test's live regions, in a JVM that several tests use at once."""

import contextlib
import os
from pathlib import Path

import psutil


class RowWorkers:
    """Finds the processes whose search path has a folder: they inherit the search path of the test's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def all(self) -> list[psutil.Process]:
        """Return the fork servers, and the processes that answer live regions."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess, psutil.AccessDenied):
                if "falkirk.live_steps.row_worker" in process.cmdline() and self._is_mine(process):
                    found.append(process)
        return found

    def answering(self) -> list[psutil.Process]:
        """Return the processes that answer live regions."""
        found = self.all()
        return [each for each in found if each.parent() in found]  # the others fork them

    def kill(self) -> None:
        """Kill all of them."""
        for each in self.all():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def _is_mine(self, process: psutil.Process) -> bool:
        return self._folder in process.environ().get("PYTHONPATH", "").split(os.pathsep)
