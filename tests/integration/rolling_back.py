"""The commands history, rollback, gc and stop, on an application that runs and on one that is stopped.

The application of tentative.py runs in the session of the tests, or in separate processes (chaos/test_commands.py).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from falkirk.cli import main
from falkirk.recovery.decision_store import Store
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Load
from tests.chaos.watched import Watched
from tests.integration.live import Wire
from tests.integration.tentative import BY_WORD, COUNTS, REGIONS, Hop, expected, released
from tests.support import wait_until

FILE = APPS / "tentative.py"


class Told:
    """Runs the commands as a user does."""

    def __init__(self, bootstrap: str, home: Path, file: Path = FILE) -> None:
        self._file, self._options = str(file), ["--kafka", bootstrap, "--home", str(home)]

    def __call__(self, command: str, *options: str) -> Result:
        return CliRunner().invoke(main, [command, self._file, *self._options, *options])

    def json(self, command: str, *options: str) -> Any:
        result = self(command, *options, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def newest(self, region: str) -> int:
        return max(p["checkpoint"] for p in self.json("history", "--unit", region))


def goes_back_to_the_newest(told: Told) -> bool:
    """Return whether the application rolled back to its newest cut; it may publish results of a later one meanwhile."""
    back = told("rollback", "--to", "1 ms ago", "--yes")
    assert back.exit_code == 0 or "REQUEST_REFUSED" in back.output, back.output
    return back.exit_code == 0


def stop_with_all_covered(told: Told, application: Watched, load: Load, published: Callable[[], int]) -> None:
    """Stop the application when its newest cut covers all published results.

    A checkpoint of the first region publishes results that later regions have computed but not saved. A rollback to the
    newest cut would take these back, so it is refused. Without new input, the checkpoints soon cover all results. While
    results are still on their way, a cut may cover those that are published so far, and a checkpoint publishes others.
    """
    rate, load.rate = load.rate, 0.0
    application.wait(lambda: published() >= load.sent, 120, "all results")
    application.wait(lambda: not told.json("history")[0]["outside"], 120, "a cut that covers all results")
    stopped = told("stop")
    assert stopped.exit_code == 0, stopped.output
    assert application.ended() == 0
    load.rate = rate


def assert_stopped(told: Told, home: Path, file: Path = FILE) -> None:
    """Check that commands find the application stopped."""
    assert CliRunner().invoke(main, ["status", str(file), "--home", str(home)]).exit_code == 1
    again = told("stop")
    assert (again.exit_code, "does not run" in again.output) == (0, True)


def back_and_on(
    broker: Broker,
    home: Path,
    tag: str,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str, Path, Mapping[str, str]], Watched],
) -> None:
    """Roll back, collect and stop the application, while it runs and while it is stopped; check all results.

    Args: make: returns the application, given the broker, its home and its environment.
    """
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, counts = wire.topic("events"), wire.topic("counts")
    env = {"EVENTS": events, "COUNTS": counts, "HOME_FOLDER": str(home), "PYTHONPATH": str(APPS.parents[2])}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    told = Told(broker.bootstrap, home)
    never = told("history")
    assert (never.exit_code, "NEVER_RAN" in never.output) == (1, True)

    application = make(broker.bootstrap, home, env)
    with application, Load(broker.bootstrap, events, rate=50.0) as load:
        application.wait_committed(2)
        application.wait(lambda: wire.count(counts) > 100, 120, "released results")

        # While the application runs, a rollback must not silently contradict published results. It may return to a
        # cut on which no published result depends.
        past = told.json("history", "--unit", COUNTS)
        assert all(p["made_at_s"] for p in past if p["checkpoint"] >= 0)
        cuts = told.json("history")
        assert cuts[-1]["checkpoints"] == dict.fromkeys(REGIONS, -1)
        assert cuts[-1]["outside"][counts] > 100
        preview = told.json("rollback", "--to", "1 hour ago", "--dry-run")
        assert (preview["cut"], {m["to"] for m in preview["moves"]}) == (0, {-1})
        assert preview["outside"][counts] > 100
        assert {m["region"] for m in preview["moves"]} == set(REGIONS)
        refused = told("rollback", "--to", "drawn@start", "--yes")
        assert (refused.exit_code, "CONTRADICTS_RELEASED" in refused.output) == (1, True)
        before = {r["name"]: r["incarnation"] for r in application.status()["regions"]}
        wait_until(lambda: goes_back_to_the_newest(told), 60, "a point on which no published results depend")
        application.wait(
            lambda: all(r["incarnation"] > before[r["name"]] for r in application.status()["regions"]),
            60,
            "new incarnations",
        )
        application.forget_status()
        application.wait_committed(2)
        assert set(told.json("gc", "--dry-run")["checkpoints"]) == set(REGIONS)

        # While the application is stopped. The application must read the waiting records before the test ends.
        load.rate = 10.0
        stop_with_all_covered(told, application, load, lambda: wire.count(counts))
        assert_stopped(told, home)
        refused = told("rollback", "--to", f"{COUNTS}@start", "--yes")
        assert (refused.exit_code, "CONTRADICTS_RELEASED" in refused.output) == (1, True)
        to = told.newest(BY_WORD)
        back = told("rollback", "--to", f"{BY_WORD}@{to}", "--yes")
        assert back.exit_code == 0, back.output
        assert told.newest(BY_WORD) <= to  # or earlier, if its input is computed again
        newest = told.json("history")[0]
        assert newest["outside"] == {}, "results are published when a consistent cut covers them"
        back = told.json("rollback", "--to", str(newest["cut"]), "--yes")
        assert {m["region"]: m["to"] for m in back["moves"]} == newest["checkpoints"]
        assert told.json("history")[0]["checkpoints"] == newest["checkpoints"]
        assert told("gc").exit_code == 0
        application.start()
        application.wait_committed(0)
        load.__exit__()
        application.wait(
            lambda: wire.count(counts) >= load.sent,
            120,
            lambda: f"{wire.count(counts)} of {load.sent} results are there",
        )
        assert told("stop").exit_code == 0
        assert application.ended() == 0
    store = Store(home / "decisions.db")
    identity = json.loads((home / "falkirk.json").read_text())["identity"]
    hop = Hop(broker.bootstrap, f"falkirk.tentative.{identity}.{BY_WORD}")
    hop.take_down()
    found = released(broker.bootstrap, counts)
    assert sorted(r["n"] for rows in found.values() for r in rows) == list(range(load.sent))
    assert found == expected(hop, store)
    store.close()
