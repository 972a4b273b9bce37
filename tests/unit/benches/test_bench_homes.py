"""The bench of homes: each application has an address of its own, and no password is in an argument."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import homes
from benchmarks.homes import STORE, HomesSettings, run_homes
from benchmarks.recovery import COUNT


@pytest.mark.parametrize("text", [COUNT, homes.TALLIES])
def test_the_applications_of_both_homes_are_python(text: str) -> None:
    for place in ("", ", home='s3a://bucket/bench', store=os.environ['FALKIRK_BENCH_STORE']"):
        written = text.replace("{rows}", "10").format(source="a", sink="b", place=place)
        compile(written, "app.py", "exec")
        assert ("s3a://bucket/bench" in written) == bool(place)


def test_each_application_has_its_own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the batch found the home of the count, and ended with HOME_OF_ANOTHER."""
    used = list[str]()

    def measure(settings: HomesSettings, folder: Path, bootstrap: str, place: str) -> dict[str, list[float]]:
        found = re.fullmatch(r", home='([^']+)', store=os\.environ\['FALKIRK_BENCH_STORE'\]", place)
        assert found is not None or not place
        used.append("" if found is None else found[1])
        return {"pause_s": [1.0]}

    monkeypatch.setenv(STORE, "postgresql://me:hush@db/bench")
    monkeypatch.setattr(homes, "_count", measure)
    monkeypatch.setattr(homes, "_batch", measure)
    broker: Any = SimpleNamespace(bootstrap="127.0.0.1:1")
    monkeypatch.setattr(homes.local_broker, "start", lambda folder: broker)
    monkeypatch.setattr(homes.local_broker, "stop", lambda folder: None)
    run_homes(HomesSettings(data="s3a://bucket/bench/", turns=2), lambda text: None)
    remote = [home for home in used if home]
    assert (len(used), len(remote), len({*remote})) == (8, 4, 4)
    assert all(home.startswith("s3a://bucket/bench/") for home in remote)


def test_the_database_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of a process can be read by all users of the machine, and the URL has a password."""
    began = list[HomesSettings]()

    def run(settings: HomesSettings, say: object) -> Any:
        began.append(settings)
        return SimpleNamespace(figures={})

    monkeypatch.setattr(command, "run_homes", run)
    monkeypatch.setattr(command, "_write", lambda *args: None)
    monkeypatch.delenv(STORE, raising=False)
    refused = CliRunner().invoke(command.bench, ["recovery", "--data", "s3a://bucket/bench"])
    assert (refused.exit_code, began) == (2, [])
    assert STORE in refused.output
    monkeypatch.setenv(STORE, "postgresql://me:hush@db/bench")
    done = CliRunner().invoke(command.bench, ["recovery", "--data", "s3a://bucket/bench"])
    assert done.exit_code == 0, done.output
    assert [settings.data for settings in began] == ["s3a://bucket/bench"]
