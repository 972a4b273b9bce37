"""Runs with `--once`: an interrupted one keeps its ends, a finished one has new ones; the coordinator ends with its
host."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.recovery.decision_store.values import Decision
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.supervision import coordinator as supervise
from falkirk.runtime.supervision import once
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.once import begin_once, close_run, decide_ends, ends_of_sources, open_decision
from falkirk.runtime.supervision.settings import EXIT_OVER, HostSettings, RunSettings
from falkirk.theory.frontier import EMPTY
from falkirk.theory.ids import LogId, Offset, Positions
from falkirk.user_tools.commands import run as running

SOURCE, ADDED = LogId("orders"), LogId("refunds")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home", "shop") as opened:
        yield opened


def begun(home: Home, offset: int) -> Decision:
    """Begin or continue a run whose source ends at an offset."""
    return decide_ends(home.store, [SOURCE], lambda logs: {log: {0: Offset(offset)} for log in logs})


def test_an_interrupted_run_continues_to_the_same_ends(home: Home) -> None:
    first = begun(home, 5)
    assert first.content == {"orders": {"0": 5}}
    assert begun(home, 9) == first
    close_run(home.store, first.number)
    assert open_decision(home.store) is None
    second = begun(home, 9)
    assert (second.number, second.content) == (1, {"orders": {"0": 9}})


def test_a_source_that_was_added_after_an_interruption_has_an_end_too(home: Home) -> None:
    """Before, the run ended without a look at the records of the new source, and said that all input is processed."""
    asked = list[LogId]()

    def both(of: Collection[LogId]) -> Positions:
        asked.extend(of)
        return {log: {0: Offset(9)} for log in of}

    first = decide_ends(home.store, [SOURCE], both)
    second = decide_ends(home.store, [SOURCE, ADDED], both)
    assert second.content == {"orders": {"0": 9}, "refunds": {"0": 9}}
    assert asked == [SOURCE, ADDED], "the end of the first source is decided"
    assert decide_ends(home.store, [SOURCE, ADDED], both) == second
    assert decide_ends(home.store, [ADDED], both) == second, "a source that was removed"
    assert second.number > first.number


def test_a_folder_that_can_not_be_listed_has_no_end(home: Home, tmp_path: Path) -> None:
    """Before, such a folder counted as empty, so the run ended and said that all input is processed."""
    folder, log = tmp_path / "in", LogId.of_files("orders")
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    files = {log: FileLog("orders", fk.Files(str(folder), "json", schema="n INT"), home.store)}
    folder.rename(tmp_path / "away")  # as a server of files that does not answer
    kafka: Any = None
    with pytest.raises(fk.LogError) as caught:
        ends_of_sources([log], topics=kafka, connection=kafka, files=files)
    assert caught.value.condition == "FOLDER_MISSING"
    assert open_decision(home.store) is None
    (tmp_path / "away").rename(folder)
    assert ends_of_sources([log], topics=kafka, connection=kafka, files=files) == {log: {0: 1}}


def test_an_ordinary_run_closes_an_interrupted_one(home: Home) -> None:
    begun(home, 5)
    context: Any = SimpleNamespace(home=home)
    layout = Layout(stages={}, partitions={}, held={})
    assert begin_once(layout, cast(Any, None), context, {}, is_once=False, tick=pytest.fail) is None
    assert begun(home, 9).content == {"orders": {"0": 9}}


def test_a_run_reads_the_time_of_its_begin(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, timers that came due between two runs waited for the run after the next one."""
    stage = Stage(name="reminders", inputs=(SOURCE,), output=LogId("out"))
    layout = Layout(stages={stage.name: stage}, partitions={SOURCE: 1, stage.output: 1}, held={})
    times = [1.0]
    monkeypatch.setattr(once, "end_of_records", lambda topics, connection, log: {0: Offset(len(times))})
    context: Any = SimpleNamespace(home=home, topics=None, connection=None)

    def begin() -> None:
        begin_once(layout, lambda log: EMPTY, context, {}, is_once=True, tick=lambda: times.append(2.0))

    begin()
    found = open_decision(home.store)
    assert found is not None
    assert found.content == {SOURCE: {"0": 2}}
    begin()  # it was interrupted
    assert open_decision(home.store) == found
    assert times == [1.0, 2.0]


class Host:
    """A host that has ended: it has processed its input. Attributes: told: the settings that it got."""

    returncode = EXIT_OVER

    def __init__(self, status_file: Path, once: dict[str, Any]) -> None:
        self.told: list[HostSettings] = []
        write = lambda line: self.told.append(HostSettings.of(line))  # noqa: E731
        self.stdin = SimpleNamespace(write=write, flush=lambda: None, close=lambda: None)
        self._file, self._once = status_file, once

    def poll(self) -> int:
        down = {"name": "b", "state": "failed", "last_commit": -1, "condition": "", "detail": ""}
        self._file.write_text(json.dumps({"at_s": 1.0, "regions": [down], "push": [], "once": self._once}))
        return EXIT_OVER

    def wait(self, timeout_s: float) -> int:
        return EXIT_OVER


@pytest.mark.parametrize(("stuck", "is_done"), [({}, True), ({"answers": "totals"}, False)])
def test_the_coordinator_ends_with_a_host_that_has_processed_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stuck: dict[str, str], is_done: bool
) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    host: Any = Host(app.home / "status.json", {"is_over": True, "left": 0, "stuck": stuck})
    settings = RunSettings(file=Path(__file__), once=True)
    coordinator = Coordinator(app, settings, say=lambda _text: None, start=lambda home: host)
    monkeypatch.setattr(supervise, "stop_asked_if_reachable", lambda store: False)
    coordinator.run()
    assert [settings.once for settings in host.told] == [True]
    assert coordinator.restarts == 0
    assert running._tell_end("shop", coordinator, is_once=True) == is_done


def test_an_interrupted_run_has_not_done_its_work(tmp_path: Path) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    coordinator = Coordinator(app, RunSettings(file=Path(__file__), once=True), say=lambda _text: None)
    assert not running._tell_end("shop", coordinator, is_once=True)
    assert running._tell_end("shop", coordinator, is_once=False)


def test_an_application_with_requests_is_refused(tmp_path: Path) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    app.source("queries", fk.Http("/queries", schema="id LONG"))
    with pytest.raises(fk.DefinitionError) as caught:
        Coordinator(app, RunSettings(file=Path(__file__), once=True))
    assert (caught.value.condition, caught.value.parameters["source"]) == ("ONCE_UNSUITABLE", "queries")


def test_the_status_line_tells_how_much_is_left() -> None:
    app = fk.App("shop")
    status = {"regions": [], "once": {"is_over": False, "left": 1234, "stuck": {}}}
    assert running.status_line(app, status) == "shop: 1,234 records left"
