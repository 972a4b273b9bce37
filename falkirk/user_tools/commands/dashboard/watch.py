"""Watch: looks at an application repeatedly, and puts the findings on the board of the page.

It reads the status that the host publishes, and the home and the logs as `falkirk history` does. So it works beside a
running application and on a stopped one, and the page can't disturb the application. It looks at the home and the logs
only while a page is open.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falkirk.errors import FalkirkError
from falkirk.errors.conditions.commands import PREVIEW_OUTDATED, ROLLBACK_NEEDS_COMMAND
from falkirk.plan.shape import read_shape
from falkirk.platform.machine_time import MachineTime
from falkirk.platform.stored import parse_json
from falkirk.recovery.ownership.requests import PATIENCE_S, ask_for_rollback
from falkirk.recovery.protocol.consistent_cuts import consistent_cuts
from falkirk.recovery.protocol.rollback import UnitCheckpoints, contradiction
from falkirk.runtime.supervision.coordinator import read_status
from falkirk.runtime.supervision.settings import SILENT_S
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.consent import Consented
from falkirk.user_tools.commands.dashboard.events import Events
from falkirk.user_tools.commands.dashboard.graph import graph_of
from falkirk.user_tools.commands.dashboard.latency import Latencies
from falkirk.user_tools.commands.dashboard.letters import newest_letters
from falkirk.user_tools.commands.dashboard.progress import Snapshot, failure, frontiers, sink_frontiers, take_snapshot
from falkirk.user_tools.commands.dashboard.visits import Visits
from falkirk.user_tools.commands.history.application import PastCut
from falkirk.user_tools.commands.history.targets import rollback_target
from falkirk.user_tools.commands.history.values import cut_json, preview_json

log = logging.getLogger("falkirk")

#: The time between two readings of the status.
STATUS_S = 0.5
#: The least time between two snapshots of the home and the logs, and its least ratio to the time that one takes.
_POLL_S, _POLL_SHARE = 1.0, 5.0
#: The number of cuts on the page.
CUTS_MAX = 300
#: The default of `close_s` of a watch.
CLOSE_S = 5.0


class DashboardWatch:
    """Watches one application. A context manager that ends its thread.

    Args: visits: read its home and its logs. home: its folder. board: of the page. clock: of the looks and waits.
        close_s: at its end, it waits so long for a request that uses the home.
    """

    def __init__(
        self, visits: Visits, home: Path, board: Board, clock: MachineTime = time, *, close_s: float = CLOSE_S
    ) -> None:
        self._visits, self._path, self._board, self._clock, self._close_s = visits, home, board, clock, close_s
        self.events, self._latencies = Events(clock.time), Latencies()
        self._stopping, self._asking = threading.Event(), threading.Lock()
        self._status: Mapping[str, Any] = {}
        self._planned: tuple[float, ...] = ()
        self._graph: dict[str, Any] = {}
        self._look: Snapshot | None = None
        self._cuts_of: UnitCheckpoints | None = None
        self._next_look_s = 0.0
        #: The last start that was measured, and since when some region has not run.
        self._start: Mapping[str, Any] = {}
        self._down_since_s: float | None = None
        #: Whether the host has ended and the next one has not reported yet: the coordinator deletes the status in
        #: between.
        self._is_replaced = False
        self._thread = threading.Thread(target=self._run, name="falkirk-dashboard", daemon=True)

    def __enter__(self) -> "DashboardWatch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._board.close()
        self._thread.join(timeout=10)
        if not self._visits.close(self._close_s):
            log.warning("a request of the dashboard still reads %s", self._path)

    def note(self, text: str) -> None:
        """Note a line of the coordinator."""
        self.events.note(text, "note")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.turn()
            except Exception as error:  # the page must outlive every error of the application
                log.warning("the dashboard can't look at %s: %s", self._path, error, exc_info=True)
            self._stopping.wait(STATUS_S)

    def turn(self) -> None:
        """Look once, and put the findings on the board."""
        file = self._path / "status.json"
        status = read_status(file)
        self._is_replaced = bool(self._status) and not file.exists()
        if status is not None and status.get("at_s") != self._status.get("at_s"):
            self._status = status
            self._start = status.get("start") or self._start
            self.events.update(status)
            if self._latencies.update(status):
                self._board.publish("latency", self._latencies.series(), quiet=True)
        self._publish_plan()
        self._board.publish("now", self._now())
        if self._board.is_watched and self._clock.monotonic() >= self._next_look_s:
            began_s = self._clock.monotonic()
            try:
                self._publish_look()
            finally:  # a snapshot that fails must not be repeated sooner
                now_s = self._clock.monotonic()
                self._next_look_s = now_s + max(_POLL_S, _POLL_SHARE * (now_s - began_s))
        self._board.publish("events", self.events.shown())

    # -- from the status ----------------------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        """Whether the application runs, as far as its status says."""
        fresh = self._clock.time() - float(self._status.get("at_s", 0.0)) < SILENT_S
        return fresh and any(unit.get("state") != "stopped" for unit in self._status.get("regions", ()))

    def _publish_plan(self) -> None:
        files = [self._path / "plan.json", self._path / "shape.json"]
        try:
            written = tuple(file.stat().st_mtime for file in files)
            if written == self._planned:
                return
            plan, shape = parse_json(files[0].read_text()), read_shape(self._path)
            if shape is None:
                return
            self._graph = graph_of(plan, shape.layout)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.debug("the plan of %s can't be read now: %s", self._path, error)
            return
        self._planned = written
        self._board.publish("graph", self._graph)

    def _now(self) -> dict[str, Any]:
        status, runs = self._status, self.runs
        units = {str(u.get("name")): dict(u) for u in status.get("regions", ())}
        if self._is_replaced:
            units = {name: {**unit, "state": "starting", "detail": ""} for name, unit in units.items()}
        all_run = runs and all(unit.get("state") == "running" for unit in units.values())
        if all_run or self._down_since_s is None:
            self._down_since_s = None if all_run else self._clock.time()
        figures = {str(f.get("name")): f for f in status.get("figures") or ()}
        for name, found in figures.items():
            if name in units:
                units[name] |= {"rows": (found.get("state") or {}).get("rows"), "sources": found.get("sources")}
        return {
            "at_s": status.get("at_s"),
            "runs": runs,
            "start_s": self._start.get("took_s"),
            "down_since_s": self._down_since_s,
            "units": units,
            "sinks": {o["name"]: self._sink_now(o, figures) for o in self._graph.get("sinks", ())},
            "foreign": [f"{f.get('count')} records in {f.get('topic')}" for f in status.get("foreign") or ()],
        }

    def _sink_now(self, sink: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        found = (figures.get(str(sink["unit"]), {})).get("sinks") or {}
        topic = str(sink["to"]).removeprefix("topic ")
        key = topic if topic in found else sink["name"]
        mine = found.get(key) or {}
        return {
            "key": f"{sink['unit']}/{key}", "records": mine.get("records"), "held": mine.get("held"),
            "held_age_s": mine.get("held_age_s"), **self._latencies.now(f"{sink['unit']}/{key}"),
        }  # fmt: skip

    # -- from the home and the logs -----------------------------------------------------------------------------------

    def _publish_look(self) -> None:
        try:
            with self._visits.visit() as visit:
                snapshot = self._look = take_snapshot(visit, self._lags())
                recovery = visit.place.home.store.newest_recovery()
        except FalkirkError as error:
            self._board.publish("look", {"error": f"{error.condition}: {error.message}"})
            return
        self.events.take_recovery(recovery)
        found: dict[str, Any] = frontiers(snapshot)
        by_unit = sink_frontiers(snapshot)
        found |= {f"sink {o['name']}": by_unit[o["unit"]] for o in self._graph.get("sinks", ()) if o["unit"] in by_unit}
        self._board.publish("look", {"at_s": self._clock.time(), "edges": found})
        self._board.publish("failure", self.failure_of(snapshot, frozenset(snapshot.layout.stages)))
        if snapshot.checkpoints != self._cuts_of:
            self._cuts_of = snapshot.checkpoints
            self._board.publish("history", self._history(snapshot))

    def _history(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        cuts = consistent_cuts(snapshot.layout, snapshot.checkpoints)
        kept = cuts if len(cuts) <= CUTS_MAX else (*cuts[: CUTS_MAX - 1], cuts[-1])
        return [
            cut_json(
                PastCut(
                    cut=each,
                    again=each.read_again(snapshot.checkpoints),
                    outside=each.contradicts(snapshot.layout, snapshot.outside),
                )
            )
            for each in kept
        ]

    def failure_of(self, snapshot: Snapshot, failed: frozenset[str]) -> dict[str, Any]:
        """Return the cost of a failure of these regions now.

        If all of them died, they would be back after the time that the last start took. The start of one region alone
        is not measured.
        """
        is_whole = failed >= set(snapshot.layout.stages)
        back_s = self._start.get("took_s") if is_whole else None
        return {**failure(snapshot, failed), "back_s": back_s, "by_standby": bool(self._start.get("standby"))}

    def _lags(self) -> dict[tuple[str, str], int]:
        return {
            (str(figures.get("name")), str(source)): int(found["lag"])
            for figures in self._status.get("figures") or ()
            for source, found in (figures.get("sources") or {}).items()
            if isinstance(found, Mapping) and isinstance(found.get("lag"), int)
        }

    # -- requests of the page -----------------------------------------------------------------------------------------

    def letters(self) -> list[dict[str, Any]]:
        """Return the newest dead letters. Raises: FalkirkError."""
        with self._visits.visit() as visit:
            return newest_letters(visit.place, visit.shape)

    def failure(self, unit: str) -> dict[str, Any] | None:
        """Return the cost of a failure of one unit now; None: nothing is known yet, or there is no such unit."""
        snapshot = self._look
        if snapshot is None or unit not in snapshot.layout.stages:
            return None
        return self.failure_of(snapshot, frozenset({unit}))

    def preview(self, cut: str) -> dict[str, Any]:
        """Return the effect of a rollback to a cut, without performing it. Raises: FalkirkError."""
        with self._visits.visit() as visit:
            target = rollback_target(visit, cut, self._clock.time())
            return {**preview_json(target, visit.preview(target.asked)), "at_s": self._clock.time()}

    def roll_back(self, cut: str, *, force: bool, shown: Consented) -> dict[str, Any]:
        """Ask the running application to roll back to a cut, and wait until it has.

        Args: shown: the effect that the page showed when its user agreed.
        Raises: FalkirkError: among them `CONTRADICTS_RELEASED` without `force`, `PREVIEW_OUTDATED`, and
            `ROLLBACK_NEEDS_COMMAND`.
        """
        if not self.runs or not self._asking.acquire(blocking=False):
            raise ROLLBACK_NEEDS_COMMAND.error(
                where=self._path, reason="another rollback is in progress" if self.runs else "it does not run", cut=cut
            )
        try:
            with self._visits.visit() as visit:
                target = rollback_target(visit, cut, self._clock.time())
                preview = visit.preview(target.asked)
                if preview.outside and not force:
                    raise contradiction(tuple(preview.outside))
                shown.require_same(cut, preview, self._clock.time())
                store = visit.place.home.store
            self.events.note(f"the page asks to roll back to cut {cut}", "recovery")
            done = ask_for_rollback(
                store,
                target.asked,
                force=force,
                timeout_s=PATIENCE_S,
                to=f"cut {cut}",
                using=self._visits.lock,
                clock=self._clock,
            )
            if done.is_earlier:
                reason = "it was carried out before, for a command or page that did not get the answer"
                raise PREVIEW_OUTDATED.error(cut=cut, reason=reason)
            return {"goes": dict(done.goes)}
        finally:
            self._asking.release()


def json_bytes(content: object) -> bytes:
    """Return plain values as JSON."""
    return json.dumps(content, default=str).encode() + b"\n"
