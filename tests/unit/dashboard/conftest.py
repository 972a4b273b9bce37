"""The stages of the tests of a watch: a home in a folder, and the findings of its looks. No Spark, and no broker."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors.conditions.commands import NEVER_RAN
from falkirk.user_tools.commands.dashboard import watch as module
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.watch import DashboardWatch
from tests.clock import MovedClock
from tests.unit.dashboard.recorded import shop
from tests.unit.metrics.statuses import status


class FoundVisits:
    """Visits that find what a test says. See `Visits`.

    Attributes: found: the attributes of each visit, except its place; None: no application has run. store: of the home.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.found: dict[str, Any] | None = None
        self.store: Any = SimpleNamespace(newest_recovery=lambda: None)

    @contextlib.contextmanager
    def visit(self) -> Iterator[Any]:
        """See `Visits`."""
        with self.lock:
            if self.found is None:
                raise NEVER_RAN.error(where="here")
            yield SimpleNamespace(place=SimpleNamespace(home=SimpleNamespace(store=self.store)), **self.found)

    def close(self, timeout_s: float) -> bool:
        """See `Visits`."""
        is_free = self.lock.acquire(timeout=timeout_s)
        if is_free:
            self.lock.release()
        return is_free


class Stage:
    """A watch on a home in a folder, which the test writes. Attributes: visits, clock: of the watch."""

    def __init__(self, home: Path) -> None:
        self.home, self.visits, self.clock, self.board = home, FoundVisits(), MovedClock(), Board()
        self.home.mkdir()
        self.watch = DashboardWatch(self.visits, home, self.board, self.clock, close_s=0.05)

    def write(self, *, passed_s: float = 1.0, **more: Any) -> None:
        """Publish a status, as a host does, and look at it."""
        self.clock.now_s += passed_s
        units = more.pop("units", [{"name": "sales", "state": "running", "last_commit": 3, "checkpoint_age_s": 1.0}])
        content = {**status(at_s=self.clock.now_s, **more), "regions": units}
        (self.home / "status.json").write_text(json.dumps(content))
        self.watch.turn()

    def plan(self) -> None:
        plan, look = shop()
        (self.home / "plan.json").write_text(json.dumps(plan))
        stages = [
            {"name": s.name, "inputs": s.inputs, "output": s.output, "deterministic": s.deterministic, "views": [],
             "times": s.times.value} for s in look.layout.stages.values()
        ]  # fmt: skip
        shape = {
            "stages": stages, "partitions": look.layout.partitions, "held": look.layout.held, "regions": [],
            "batches": [], "processors": {},
        }  # fmt: skip
        (self.home / "shape.json").write_text(json.dumps(shape))

    def texts(self) -> list[str]:
        return [event["text"] for event in self.board.part("events")]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "home")


@pytest.fixture
def looked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A watch whose looks find the recorded shop, while a page is open."""
    stage.plan()
    monkeypatch.setattr(module, "take_snapshot", lambda visit, lags: shop()[1])
    stage.visits.found = {}
    stream = stage.board.stream("", beat_s=0.01)
    next(stream)
    yield stage
    stream.close()  # type: ignore[attr-defined]
