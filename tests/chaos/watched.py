"""An application that a test starts, and waits for by its status: in separate processes (harness.py), or in here.py."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from tests.support import wait_until

START_S = 400.0
#: How many results must follow a region's checkpoint when everything is killed, under a load of 50 records a second.
BEHIND_LEAST = 20


class Watched(ABC):
    """An application that is started, waited for, and stopped."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._since_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start the application."""

    @abstractmethod
    def stop(self) -> int:
        """Stop the application, as a user does; return the exit code."""

    @abstractmethod
    def ended(self) -> int:
        """Wait until the application ends by itself; return the exit code."""

    @abstractmethod
    def runs(self) -> bool:
        """Return whether the application runs, or restarts after a failure."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Return the last status."""

    @abstractmethod
    def log(self) -> str:
        """Return what is worth knowing after a failure."""

    def forget_status(self) -> None:
        """Ignore the present status: from now on only a newer one counts."""
        self._since_s = time.time()

    def wait(self, condition: Callable[[], object], timeout_s: float, what: str | Callable[[], str]) -> None:
        """Wait for `what`. After `timeout_s`, or when the application ends, fail with the status and the logs."""

        def state() -> str:
            return f"{what if isinstance(what, str) else what()}\n{self.status()}\n{self.log()}"

        def met() -> object:
            assert self.runs(), f"the application ended while a test waited for: {state()}"
            return condition()

        wait_until(met, timeout_s, state)

    def suppressed(self) -> Counter[str]:
        """Return how many results the present incarnation of each region found already published."""
        return Counter({region["name"]: region["suppressed"] for region in self.status()["regions"]})

    def wait_committed(self, batches: int) -> None:
        """Wait until every region runs and has committed a batch with at least this number."""

        def ready() -> bool:
            status = self.status()
            regions = status["regions"]
            return bool(
                regions
                and status["at_s"] > self._since_s
                and all(r["state"] == "running" and r["last_commit"] >= batches for r in regions)
            )

        self.wait(ready, START_S, f"batch {batches} to be committed")

    def last_commits(self) -> dict[str, int]:
        """Return the last committed batch of each live region, from a valid status; empty until all regions run."""
        status = self.status()
        if status["at_s"] <= self._since_s or any(r["state"] != "running" for r in status["regions"]):
            return {}
        return {r["name"]: r["last_commit"] for r in status["regions"] if r["incarnation"]}

    def wait_next_commit(self) -> None:
        """Wait until every live region has committed another batch."""
        before = self.last_commits()

        def is_beyond() -> bool:
            assert self.runs(), self.log()
            after = self.last_commits()
            return bool(after) and all(last > before.get(name, -1) for name, last in after.items())

        self.wait(is_beyond, START_S, f"a batch after {before} to be committed")

    def newest_checkpoint(self, region: str) -> int:
        """Return the newest checkpoint of a live region, from its files: a status is older."""
        return last_committed_batch(self.home / "regions" / region)

    def wait_results_behind(
        self, results: Mapping[str, Callable[[], int]], least: Mapping[str, int] = {}
    ) -> dict[str, int]:
        """Wait until each region has written another checkpoint and published results after its last one.

        All have them at the same moment, so a kill at that moment lets each region compute published results again,
        unless one has written a checkpoint meanwhile: see `Application.kill_everything_behind`.

        Args: results: the number of published results of each region. least: how many results must follow a
            checkpoint, if not `BEHIND_LEAST`.
        Returns: the last checkpoint of each region.
        """
        first: dict[str, int] = {}
        seen: dict[str, tuple[int, int]] = {}

        def all_behind() -> bool:
            assert self.runs(), self.log()
            if not self.last_commits():
                return False
            for name, count in results.items():
                newest = self.newest_checkpoint(name)
                first.setdefault(name, newest)
                if name not in seen or seen[name][0] != newest:
                    seen[name] = newest, count()
            return all(
                seen[name][0] > first[name] and count() > seen[name][1] + least.get(name, BEHIND_LEAST)
                for name, count in results.items()
            )

        wait_until(all_behind, 180, lambda: f"results after a checkpoint of each: {seen}\n{self.log()}")
        return {name: number for name, (number, _) in seen.items()}
