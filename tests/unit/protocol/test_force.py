"""The `--force` option: it goes from the command line to the coordinator of one host, and to no later host."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk import cli
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.host import Host as RealHost
from falkirk.runtime.supervision.live_first import LiveFirst
from falkirk.runtime.supervision.settings import HostSettings, RunSettings


@pytest.mark.parametrize("force", [False, True])
def test_the_command_hands_it_on(force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[RunSettings] = []
    monkeypatch.setattr(cli, "load_application", lambda file: fk.App("shop", home=tmp_path))
    monkeypatch.setattr(cli, "run_in_terminal", lambda app, settings: given.append(settings))
    result = CliRunner().invoke(cli.main, ["run", "shop.py", *(["--force"] if force else [])])
    assert (result.exit_code, [s.force for s in given]) == (0, [force])


class Host:
    """A host that has written a status, and ends once the status was read."""

    def __init__(self, status_file: Path, state: str) -> None:
        self.told: list[str] = []
        self.stdin, self._polls = SimpleNamespace(write=self.told.append, flush=lambda: None), 0
        regions = [{"name": "counts", "state": state, "last_commit": -1}]
        status_file.write_text(json.dumps({"at_s": 1.0, "regions": regions, "push": [], "error": None}))

    def poll(self) -> int | None:
        self._polls += 1
        return None if self._polls == 1 else 1

    @property
    def force(self) -> bool:
        return HostSettings(**json.loads(self.told[0])).force


def test_it_is_meant_once(tmp_path: Path) -> None:
    """Until regions run, a replacement of the host gets the option too; a loss that is found later must be refused."""
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    coordinator = Coordinator(app, RunSettings(file=Path(__file__), force=True))
    told = []
    with open_home(app.home, app.name) as home:
        for state in ("starting", "running", "running"):
            host = Host(tmp_path / "status.json", state)
            coordinator._watch(cast(Any, host), tmp_path / "status.json", home)
            told.append(host.force)
    assert told == [True, True, False]


def test_what_others_can_do_to_the_spark_application_is_said_once(tmp_path: Path) -> None:
    """Only the host knows Spark's settings. Before, the warning was in host.log alone."""
    said: list[str] = []
    coordinator = Coordinator(
        fk.App("shop", kafka="127.0.0.1:1", home=tmp_path), RunSettings(file=Path(__file__)), say=said.append
    )
    for _ in range(2):
        coordinator._warn({"exposed": ["passwords cross in clear"]})
        coordinator._warn({})
    assert said == ["warning: passwords cross in clear"]


@pytest.mark.parametrize("force", [False, True])
def test_the_host_opens_with_it(force: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bool] = []
    recovery = SimpleNamespace(open=lambda force=False: opened.append(force))
    host = cast(Any, RealHost.__new__(RealHost))
    host._units, host._batches = {}, SimpleNamespace(prepare=lambda: None, stop=lambda: None)
    host._regions, host._live_first = {}, LiveFirst()
    host._executors = SimpleNamespace(record=lambda complete=False: None)
    host._foreign = SimpleNamespace(start=lambda: None, stop=lambda: None)
    host._rollbacks = SimpleNamespace(settle=lambda: None)
    host._failures, host._losses = Failures(), SimpleNamespace(any=lambda: False)
    host._plan, host._context = (
        SimpleNamespace(units=(), regions=(), batches=()),
        SimpleNamespace(
            topics=None,
            home=SimpleNamespace(path=None, is_shared=False),
        ),
    )
    shape = SimpleNamespace(layout=SimpleNamespace(held={}), write=lambda path: None)
    monkeypatch.setattr("falkirk.runtime.supervision.host.look_first", lambda place, names: None)
    monkeypatch.setattr("falkirk.runtime.supervision.host.planned_shape", lambda plan, topics: shape)
    monkeypatch.setattr(RealHost, "_new_protocol", lambda self, shape: recovery)
    monkeypatch.setattr(RealHost, "_answer_rollback", lambda self, recover: False)
    monkeypatch.setattr(RealHost, "figures", lambda self: [])
    host.start(force=force)
    assert opened == [force]
    assert not host._context.home.may_delete, "until all outputs are compared"
