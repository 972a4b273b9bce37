"""`falkirk state` of a live region whose checkpoints are in an object store: it reads a copy of the newest one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.theory.ids import BatchId
from falkirk.user_tools.commands import kept_state
from falkirk.user_tools.commands.kept_state import READ_TRIES, live_state, newest_checkpoint
from tests.support import outcome
from tests.unit.live.machines import Machine

REGION: Any = SimpleNamespace(name="r", sources=("pages",), keyed_step="groupBy")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The machine that runs the region."""
    found = Machine(tmp_path, Store(tmp_path / "decisions.db"), "runs")
    found.begin()
    return found


@pytest.fixture
def home(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The home as another machine sees it. The state that is read is the number and the files of the checkpoint."""

    def read(region: Any, folder: Path, number: int, *_: Any) -> Any:
        return number, sorted(path.name for path in folder.rglob("*_*"))

    monkeypatch.setattr(kept_state, "_live_state", read)
    return cast(
        Any,
        SimpleNamespace(
            is_shared=True, store=Store(tmp_path / "decisions.db"), checkpoint=lambda name: tmp_path / "none",
            data_of=lambda name: LocalData(tmp_path / "objects"),
        ),
    )  # fmt: skip


def test_the_newest_sound_checkpoint_is_read(machine: Machine, home: Any) -> None:
    assert outcome(lambda: newest_checkpoint(REGION, home)) == "STATE_MISSING"
    for batch in range(3):
        machine.commit(batch)
    home.store.distrust("r", BatchId(2), "torn")
    files = ["1_a0.changelog", "1_b0.changelog", "2_a1.changelog", "2_b1.changelog"]
    assert cast(Any, live_state(REGION, home, cast(Any, None), (), 5)) == (1, files)


def test_a_checkpoint_that_is_deleted_each_time_is_refused(machine: Machine, home: Any, tmp_path: Path) -> None:
    machine.commit(0)
    for path in (tmp_path / "objects").rglob("*.changelog"):
        path.unlink()
    assert READ_TRIES > 1
    assert outcome(lambda: live_state(REGION, home, cast(Any, None), (), 5)) == "STATE_UNREADABLE"
