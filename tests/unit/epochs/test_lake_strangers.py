"""Other programs change a lake table between two epochs: no epoch is lost or repeated. The tests need no Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from falkirk.errors import SparkError
from falkirk.runtime.spark.sinks import lake as lakes
from falkirk.runtime.spark.sinks.lake import LakeTarget
from falkirk.theory.ids import EpochNumber
from tests.unit.epochs.test_lake_tables import KINDS, SCHEMA, Lake, commit


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


class Rows:
    """The rows of an epoch, without Spark."""

    schema = SCHEMA


class Target(LakeTarget):
    """Writes one row per epoch, its number, without Spark."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.declared(), lake.table, "out", "home/out", confirm=lambda: None)

    def _written(self, epoch: EpochNumber, rows: Any, unfit: Any, data: Path, *, few: bool) -> Any:
        path = data / f"{epoch}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([epoch], pa.int64())}), path)
        size = path.stat().st_size
        file = lakes.DataFile(name=path.name, rows=1, size_bytes=size, modified_ms=0, partition={})
        return lakes._Attempt(epoch=epoch, folder=path, files=(file,), lacks_rows=False)

    def add(self, epoch: int) -> None:
        self.deliver(EpochNumber(epoch), Rows())  # type: ignore[arg-type]  # no DataFrame


def test_a_table_that_falls_back_between_two_epochs_gets_no_later_one(lake: Lake) -> None:
    """The later one would hide that those before it are missing."""
    target = Target(lake)
    assert target.delivered() == 0
    for epoch in range(3):
        target.add(epoch)
    lake.undo(2)
    with pytest.raises(SparkError, match="no longer has the epochs from 1 on"):
        target.add(3)
    assert lake.read() == [0]
    assert target.delivered() == 1, "so the releaser notices it"
    for epoch in (2, 3):  # epoch 1 was cancelled: nobody waits for it
        target.add(epoch)
    assert (lake.read(), target.delivered()) == ([0, 2, 3], 4)


def test_a_table_that_falls_back_while_an_epoch_is_written_does_not_get_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(lake)
    for epoch in range(3):
        target.add(epoch)
    write = Target._written

    def undone(self: Target, *arguments: Any, **options: Any) -> Any:
        if lake.read() == [0, 1, 2]:
            lake.undo(2)
        return write(self, *arguments, **options)

    monkeypatch.setattr(Target, "_written", undone)
    with pytest.raises(SparkError, match="no longer has the epochs from 1 on"):
        target.add(3)
    assert lake.read() == [0]


def test_a_table_that_is_deleted_between_two_epochs_gets_no_later_one(lake: Lake) -> None:
    target = Target(lake)
    for epoch in range(2):
        target.add(epoch)
    lake.delete()
    with pytest.raises(SparkError, match="no longer has the epochs from 0 on"):
        target.add(2)
    assert target.delivered() == 0


def test_a_tag_keeps_an_old_snapshot_of_an_iceberg_table(tmp_path: Path) -> None:
    """It is no ancestor of the newest one if those between were removed. Nobody has rolled anything back."""
    lake = Lake("iceberg", tmp_path)
    commit(lake.opened(), 0)
    table = lake.catalog().load_table("shop.t")
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "audit").commit()
    commit(lake.opened(), 1)
    lake.add_by_another_program()
    lake.expire(but=first.snapshot_id)
    assert lake.opened().progress.below == 2
    commit(lake.opened(), 2)
    assert (lake.read(), lake.opened().progress.below) == ([-1, 0, 1, 2], 3)


def test_an_iceberg_table_that_was_rolled_back_and_lost_old_snapshots(tmp_path: Path) -> None:
    """The undone epochs are known by their snapshots, which are younger than the newest one of the table."""
    lake = Lake("iceberg", tmp_path)
    commit(lake.opened(), 0)
    lake.add_by_another_program()
    for epoch in (1, 2):
        commit(lake.opened(), epoch)
    lake.undo(2)
    oldest = min(lake.catalog().load_table("shop.t").snapshots(), key=lambda s: s.sequence_number or 0)
    lake.catalog().load_table("shop.t").maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()
    assert (lake.read(), lake.opened().progress.below) == ([-1, 0], 1)


def test_properties_of_an_older_commit_repeat_no_epoch(tmp_path: Path) -> None:
    """A REST catalog takes a late commit of an epoch without rows, because such a commit names no snapshot."""
    lake = Lake("iceberg", tmp_path)
    for epoch in range(3):
        commit(lake.opened(), epoch)
    with lake.catalog().load_table("shop.t").transaction() as late:
        late.set_properties({"falkirk.out.below": "2"})
    assert lake.opened().progress.below == 3


def test_a_commit_that_says_nothing_of_itself_is_counted(tmp_path: Path) -> None:
    """`commitInfo` is optional in Delta's protocol. Without it, versions of a history were numbered wrongly."""
    lake = Lake("delta", tmp_path)
    for epoch in range(2):
        commit(lake.opened(), epoch)
    restored_to = DeltaTable(tmp_path / "t").version()
    unsaid = tmp_path / "t" / "_delta_log" / f"{restored_to + 1:020d}.json"
    unsaid.write_text(json.dumps({"txn": {"appId": "another", "version": 1}}) + "\n")
    commit(lake.opened(), 2)
    DeltaTable(tmp_path / "t").restore(restored_to)
    assert (lake.read(), lake.opened().progress.below) == ([0, 1], 2)
