"""`falkirk status`: the last status of the host, and whether the host still updates it."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from falkirk.cli import main
from falkirk.errors import SparkError
from falkirk.runtime.status import RegionStatus

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


def test_what_others_have_written_is_named(shop: Path) -> None:
    publish(shop)
    file = shop.parent / "home" / "status.json"
    foreign = {"topic": "out", "count": 1234, "partition": 1, "offset": 56, "reason": "a tag that does not fit"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"foreign": [foreign]}))
    shown = " ".join(ask(shop).output.split())
    assert "out has 1,234 records that this home did not write" in shown
    assert "(partition 1, offset 56: a tag that does not fit)" in shown


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
