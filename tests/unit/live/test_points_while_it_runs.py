"""The points of a region, read by a command while the application runs and deletes checkpoints."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.recovery.decision_store import TailRecord
from falkirk.runtime.spark.live import at_rest, checkpoint
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.live.kept import KeptCheckpoints
from falkirk.theory.ids import BatchId
from tests.unit.live.test_checkpoint_files import write, write_batch

#: The application deletes all checkpoints before `KEPT`, while a command reads this one.
GONE, KEPT = 3, 5
#: Nothing was published before the first checkpoint.
TAIL = TailRecord(valid_from_commit=-1, incarnation=0, positions={})


@pytest.fixture
def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegionAtRest:
    folder = write(tmp_path / "checkpoint", 0)
    for batch in range(7):
        write_batch(folder, batch)
    monkeypatch.setattr(at_rest, "Outputs", lambda logs, place: None)
    store = SimpleNamespace(
        distrusted=lambda name: (),
        region=lambda name: None,
        retained_from=lambda name: None,
        tails=lambda name: (TAIL,),
    )
    home = SimpleNamespace(store=store, checkpoint=lambda name: folder, is_shared=False)
    place = SimpleNamespace(home=home, oldest=lambda topic: {})
    logs = SimpleNamespace(name="r", sources=("pages",), output="out", views=())
    region = RegionAtRest(cast(Any, logs), cast(Any, place))
    region._start_offsets = lambda: {"pages": {}}  # type: ignore[assignment, dict-item, method-assign]
    return region


def deletes_at(name: str, region: RegionAtRest, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the application delete checkpoints right before this function is called for one of them."""
    before = getattr(checkpoint, name)

    def called(place: Path, batch: int, *topics: Any) -> Any:
        if batch == GONE:
            checkpoint.keep_only(folder, (BatchId(KEPT),))
        return before(place, batch, *topics)

    monkeypatch.setattr(checkpoint, name, called)


@pytest.mark.parametrize("name", ["end_offsets", "committed_at_s"])
def test_a_checkpoint_that_vanishes_is_no_point(
    name: str, region: RegionAtRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert GONE in {p.number for p in region.checkpoints()}
    deletes_at(name, region, monkeypatch, tmp_path / "checkpoint")
    assert {p.number for p in region.checkpoints()} == {5, 6}


def test_one_that_was_set_aside_meanwhile_is_read_there(
    region: RegionAtRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    KeptCheckpoints(tmp_path / "checkpoint", "pages").set_aside([GONE], newest=60, retain=10)
    deletes_at("committed_at_s", region, monkeypatch, tmp_path / "checkpoint")
    assert GONE in {p.number for p in region.checkpoints()}


def test_a_file_that_is_missing_for_good_is_an_error(region: RegionAtRest, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: Any) -> float:
        raise FileNotFoundError

    monkeypatch.setattr(checkpoint, "committed_at_s", missing)
    with pytest.raises(FileNotFoundError):
        region.checkpoints()


def replaces_at(batch: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a region without input replace its only checkpoint by an equal one, right before a command looks at it."""
    before = checkpoint.damage

    def called(place: Path, number: int, *topics: Any) -> str | None:
        if number == batch and not (folder / "commits" / str(batch + 1)).exists():
            write_batch(folder, batch + 1)
            checkpoint.keep_only(folder, (BatchId(batch + 1),))
        return before(place, BatchId(number), *topics)

    monkeypatch.setattr(checkpoint, "damage", called)


def test_the_newest_checkpoint_is_replaced_meanwhile(
    region: RegionAtRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither damaged, nor is the initial state the only one left."""
    checkpoint.keep_only(tmp_path / "checkpoint", (BatchId(6),))
    replaces_at(6, monkeypatch, tmp_path / "checkpoint")
    assert [p.number for p in region.checkpoints()] == [7]
    assert caplog.messages == []
    assert region.damaged == set()


def test_a_state_file_that_spark_deletes_meanwhile_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, before = write(tmp_path / "checkpoint", 3), Path.glob

    def found(self: Path, pattern: str) -> Any:
        files = list(before(self, pattern))
        for file in files:
            file.unlink()
        return files

    monkeypatch.setattr(Path, "glob", found)
    assert "state of partition 0 after batch 2 is missing" in str(checkpoint.damage(folder, BatchId(2), "pages"))  # type: ignore[arg-type]
