"""`falkirk status`: the last status of the host, and whether the host still updates it."""

import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import falkirk as fk
from falkirk.cli import main
from falkirk.declare.load import load_application
from falkirk.errors import HomeError, SparkError
from falkirk.plan.objective import chosen, objective_values
from falkirk.platform import locks
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.folder import LEASED, open_home, this_process, waiting_home
from falkirk.runtime.spark.status import RegionStatus
from falkirk.theory.objective import Measurements
from falkirk.user_tools.commands.homes import homes_below
from falkirk.user_tools.commands.owners import WAITING_SHOWN_S
from falkirk.user_tools.commands.status import picture, see, watch
from tests.unit.regions import region_under

APP = """
import falkirk as fk
app = fk.App("shop", home="{home}")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return file


def publish(shop: Path, *, state: str = "running", at_s: float | None = None) -> None:
    region = {
        "name": "sales",
        "state": state,
        "checkpoint_age_s": 4.0,
        "detail": "",
        "dead_letters": 1200,
        "suppressed": 0,
    }
    content = {"at_s": time.time() if at_s is None else at_s, "pid": 1, "regions": [region], "error": None}
    (shop.parent / "home" / "status.json").write_text(json.dumps(content))


def ask(shop: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["status", str(shop), *options])


def test_the_choice_for_an_objective_is_shown_with_its_warning(shop: Path) -> None:
    region = chosen(region_under("sales", fk.Lazy(recover_within="5 seconds")), Measurements(restart_s=11.0))
    status = RegionStatus(name="sales", state="running", objective=objective_values(region))
    content = {"at_s": time.time(), "pid": 1, "regions": [asdict(status)], "error": None}
    (shop.parent / "home" / "status.json").write_text(json.dumps(content))
    shown = " ".join(ask(shop).output.split())
    assert "sales: a checkpoint every 2 s, to recover within 5 s. Restart 11.0 s (measured), replay" in shown
    assert "Warning: OBJECTIVE_MISSED: 'sales' may need longer than 5 s to recover" in shown
    described = json.loads(ask(shop, "--json").output)["regions"][0]["objective"]
    assert (described["interval_s"], described["met"]) == (2.0, False)
    table = Console(file=io.StringIO(), width=200)
    table.print(picture(see(load_application(shop), shop.parent / "home"), time.time()))
    assert "to recover within 5 s" in cast(io.StringIO, table.file).getvalue()


def test_the_owner_of_a_lease_and_those_that_wait_are_shown(shop: Path) -> None:
    home, mine = shop.parent / "home", this_process()
    publish(shop)
    with waiting_home(home, "shop") as owner:
        owner.take_charge()
        assert "owner" not in json.loads(ask(shop, "--json").output), "without a lease the store is not asked"
        assert owner.take_lease(owner.store.lease(), 10.0)
        owner.store.note_waiting("key", "process 7 on here")
        told = json.loads(ask(shop, "--json").output)
        assert told["owner"].pop("renewed_s_ago") < 60
        assert told["owner"] == {"process": mine, "generation": 2, "lease_s": 10.0}
        assert [each["process"] for each in told["waiting"]] == ["process 7 on here"]
        shown = " ".join(ask(shop).output.split())
        assert f"owner: {mine}, generation 2, lease of 10 s renewed" in shown
        assert "waiting: process 7 on here, seen" in shown
        owner.store.release_lease()
        owner.store.forget_waiting("key")
        shown = " ".join(ask(shop).output.split())
        assert f"no owner: {mine} has released the lease" in shown
        assert "waiting" not in shown
        owner.take_charge()
        assert f"owner: {mine}, generation 3, without a lease" in " ".join(ask(shop).output.split())


def test_a_process_that_no_longer_says_that_it_waits_is_not_shown(shop: Path) -> None:
    now_s = time.time()
    clock = iter(
        [now_s - 1_000, now_s - 1_000, now_s - WAITING_SHOWN_S - 1, now_s - WAITING_SHOWN_S - 1, now_s, now_s, now_s]
    )
    with open_home(shop.parent / "home", "shop", clock=lambda: next(clock, now_s)) as home:
        (shop.parent / "home" / LEASED).touch()
        for name in ("long ago", "some time ago", "now"):
            home.store.note_waiting(name, name)
        assert "long ago" not in [each.holder for each in home.store.waiting()], "nobody deletes it but another one"
    assert [each["process"] for each in json.loads(ask(shop, "--json").output)["waiting"]] == ["now"]


def test_a_store_that_cannot_be_read_hides_only_the_owner(shop: Path) -> None:
    publish(shop)
    for name in (LEASED, "lock"):
        (shop.parent / "home" / name).touch()
    ask(shop)
    assert not (shop.parent / "home" / "falkirk.json").exists(), "a command that only looks makes no home"
    (shop.parent / "home" / "falkirk.json").write_text("torn")
    shown = ask(shop)
    assert shown.exit_code == 0
    assert "sales running" in shown.output
    assert "owner unknown: falkirk.json can't be read" in " ".join(shown.output.split())


def test_what_others_have_written_is_named(shop: Path) -> None:
    publish(shop)
    file = shop.parent / "home" / "status.json"
    foreign = {"topic": "out", "count": 1234, "partition": 1, "offset": 56, "reason": "a tag that does not fit"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"foreign": [foreign]}))
    shown = " ".join(ask(shop).output.split())
    assert "out has 1,234 records that this application did not write" in shown
    assert "(first: partition 1, offset 56, a tag that does not fit)" in shown


def test_a_running_application_shows_its_regions(shop: Path) -> None:
    publish(shop)
    shown = ask(shop)
    assert shown.exit_code == 0
    assert "sales running" in shown.output
    assert "1,200 dead letters" in shown.output
    told = json.loads(ask(shop, "--json").output)
    assert (told["runs"], told["regions"][0]["name"]) == (True, "sales")


def test_one_that_never_ran_was_stopped_or_fell_silent_does_not_run(shop: Path) -> None:
    assert ask(shop).exit_code == 1
    publish(shop, state="stopped")
    assert ask(shop).exit_code == 1
    publish(shop, at_s=time.time() - 3600)
    assert ask(shop).exit_code == 1
    assert json.loads(ask(shop, "--json").output)["runs"] is False


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_falkirk_status_says_what_is_down_and_why(shop: Path, state: str) -> None:
    error = SparkError("FUNCTION_FAILED", "a function failed on a row.", where="shop.py:7", hint="Mend it.")
    status = RegionStatus(name="sales", state=state).failed(error)
    content = {"at_s": time.time(), "pid": 1, "regions": [vars(status)], "error": None}
    (shop.parent / "home" / "status.json").write_text(json.dumps(content))
    shown = ask(shop)
    assert "sales failed for good and stays down. FUNCTION_FAILED: a function failed on a row. (shop.py:7)" in " ".join(
        shown.output.split()
    )
    assert shown.exit_code == (0 if state == "failed" else 1)
    assert json.loads(ask(shop, "--json").output)["regions"][0]["condition"] == "FUNCTION_FAILED"


@pytest.mark.parametrize("seen", ["nothing", "stopped", "old"])
def test_it_runs_between_two_spark_applications(shop: Path, seen: str) -> None:
    """A host ends with the status `stopped`, the coordinator deletes it before the next one, and that one is slow."""
    home = shop.parent / "home"
    if seen != "nothing":
        publish(shop, **{"stopped": {"state": "stopped"}, "old": {"at_s": time.time() - 3600}}[seen])  # type: ignore[arg-type]
    held = locks.hold(home, locks.OWNER, str(os.getpid()))
    try:
        shown, told = ask(shop), json.loads(ask(shop, "--json").output)
        assert shown.exit_code == 0
        assert shown.output.split()[-2:] == (["shop:", "starting"] if seen == "nothing" else ["dead", "letters"])
        assert "starting" in shown.output
        assert told["runs"] is True
        assert [r["state"] for r in told["regions"]] == ([] if seen == "nothing" else ["starting"])
    finally:
        os.close(held)
    assert ask(shop).exit_code == 1


def test_a_region_that_stays_down_is_named_meanwhile(shop: Path) -> None:
    error = SparkError("FUNCTION_FAILED", "a function failed on a row.", where="shop.py:7", hint="Mend it.")
    status = RegionStatus(name="sales", state="stopped").failed(error)
    content = {"at_s": time.time(), "pid": 1, "regions": [vars(status)], "error": None}
    (shop.parent / "home" / "status.json").write_text(json.dumps(content))
    held = locks.hold(shop.parent / "home", locks.OWNER, str(os.getpid()))
    try:
        shown = ask(shop)
    finally:
        os.close(held)
    assert shown.exit_code == 0
    assert "sales failed for good and stays down" in " ".join(shown.output.split())


def test_a_command_that_visits_the_home_does_not_run_the_application(tmp_path: Path) -> None:
    """`falkirk gc` holds the lock of an application that does not run."""
    home = tmp_path / "home"
    app = fk.App("shop", home=home)
    with open_home(home, "shop", visits=True):
        assert not see(app, home).runs
        assert not next(homes_below(home)).runs
        with pytest.raises(HomeError, match=f"pid {os.getpid()}"):
            open_home(home, "shop")
    with open_home(home, "shop"):
        assert see(app, home).line == "shop: starting"
        assert next(homes_below(home)).runs


def watched(shop: Path, *changes: Callable[[], None], as_json: bool = False, is_terminal: bool = False) -> str:
    """Watch an application that changes so between two looks; then Ctrl-C ends the watch."""
    out, coming = io.StringIO(), list(changes)

    def wait(seconds: float) -> None:
        if not coming:
            raise KeyboardInterrupt
        coming.pop(0)()

    app = load_application(shop)
    terminal = Terminal(file=out, width=100, force_terminal=is_terminal)
    watch(lambda: see(app, shop.parent / "home"), as_json=as_json, terminal=terminal, wait=wait)
    return out.getvalue()


def test_a_watch_outside_a_terminal_prints_a_line_for_each_change(shop: Path) -> None:
    publish(shop)
    lines = watched(
        shop, lambda: publish(shop), lambda: publish(shop, state="recovering"), lambda: publish(shop, state="stopped")
    ).splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "shop: sales running, checkpoint 4 s ago, 1,200 dead letters",
        "shop: sales recovering, checkpoint 4 s ago, 1,200 dead letters",
        "shop: does not run",
    ]


def test_a_watch_in_a_terminal_redraws_a_table_with_the_figures(shop: Path) -> None:
    publish(shop)
    file = shop.parent / "home" / "status.json"
    figures = {
        "name": "sales",
        "sources": {"orders": {"lag": 1234}, "prices": {"lag": None}},
        "sinks": {"sales": {"records": 5000}},
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | {"figures": [figures]}))
    shown = watched(shop, lambda: publish(shop, state="stopped"), is_terminal=True)
    for text in ("sales", "running", "1,234", "5,000", "1,200", "shop: does not run; its last status is of"):
        assert text in shown
    assert "\x1b[" in shown, "it moves the cursor back"


def test_a_watch_with_json_prints_an_object_for_each_status(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(shop, at_s=time.time() - 2)
    watched(shop, lambda: None, lambda: publish(shop), as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["runs"] for each in told] == [True, True]
    assert told[0]["at_s"] < told[1]["at_s"]
