"""Tables of Delta Lake and Iceberg, without Spark: which epochs they have, and what two writers do to one another."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql.types import DayTimeIntervalType, DoubleType, IntegerType, LongType, StringType, StructType

import falkirk as fk
from falkirk.errors import HomeError, SparkError, StoreError
from falkirk.plan import lake as planning
from falkirk.runtime.spark.sinks import delta, iceberg
from falkirk.runtime.spark.sinks.delta import DeltaLakeTable
from falkirk.runtime.spark.sinks.iceberg import IcebergTable
from falkirk.runtime.spark.sinks.lake import (
    CommitConflict,
    DataFile,
    LakeTable,
    LakeTarget,
    OpenedTable,
    TableOfAnother,
    TableUnfit,
)
from falkirk.runtime.spark.sinks.targets import target_of
from falkirk.theory.ids import EpochNumber
from falkirk.user_tools.commands.judge_places import output_place
from tests.support import outcome

SCHEMA = StructType().add("id", LongType())
KINDS = ("delta", "iceberg")


class Lake:
    """One table of a kind, in a folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)}

    def declared(self, **options: Any) -> fk.Delta | fk.Iceberg:
        """Return its declaration."""
        if self.kind == "delta":
            return fk.Delta(str(self.folder / "t"), **options)
        return fk.Iceberg("shop.t", "lake", self.properties, **options)

    def table(self, application: str = "home", **options: Any) -> LakeTable:
        """Return the table, as a new process finds it."""
        to = self.declared(**options)
        if isinstance(to, fk.Delta):
            return DeltaLakeTable(to, application, "out")
        return IcebergTable(to, application, "out")

    def opened(self) -> OpenedTable:
        """Return its newest version."""
        table = self.table()
        return table.open() or table.create(SCHEMA)

    def catalog(self) -> Catalog:
        return load_catalog("lake", **self.properties)

    def read(self) -> list[int]:
        """Return the ids that another program reads."""
        if self.kind == "delta":
            rows = DeltaTable(self.folder / "t").to_pyarrow_table()
        else:
            rows = self.catalog().load_table("shop.t").scan().to_arrow()
        return sorted(rows["id"].to_pylist())

    def add_by_another_program(self) -> None:
        """Append a row as a program does that knows nothing of Falkirk."""
        rows = pa.table({"id": pa.array([-1], pa.int64())})
        if self.kind == "delta":
            write_deltalake(self.folder / "t", rows, mode="append")
        else:
            self.catalog().load_table("shop.t").append(rows)

    def undo(self, commits: int) -> None:
        """Return the table to the version before its newest commits, as its operator does."""
        if self.kind == "delta":
            table = DeltaTable(self.folder / "t")
            table.restore(table.version() - commits)
            return
        loaded = self.catalog().load_table("shop.t")
        snapshot = sorted(loaded.snapshots(), key=lambda s: s.sequence_number or 0)[-1 - commits]
        loaded.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()

    def delete(self) -> None:
        """Delete the table, as its operator does."""
        if self.kind == "delta":
            shutil.rmtree(self.folder / "t")
        else:
            self.catalog().drop_table("shop.t")

    def expire(self, *, but: int) -> None:
        """Remove the snapshots of an Iceberg table, except the newest one and this one."""
        loaded = self.catalog().load_table("shop.t")
        newest = loaded.current_snapshot()
        assert newest is not None
        ids = [s.snapshot_id for s in loaded.snapshots() if s.snapshot_id not in (newest.snapshot_id, but)]
        loaded.maintenance.expire_snapshots().by_ids(ids).commit()


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def commit(opened: OpenedTable, epoch: int, *, rows: bool = True, attempt: str = "a") -> None:
    """Commit an epoch with one row, its number."""
    files: list[DataFile] = []
    if rows:
        path = opened.data / f"{epoch}-{attempt}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([epoch], pa.int64())}), path)
        size = path.stat().st_size
        files = [DataFile(name=path.name, rows=1, size_bytes=size, modified_ms=0, partition={})]
    ever = EpochNumber(max(epoch + 1, opened.progress.ever))
    opened.commit(EpochNumber(epoch), files, ever)


def test_an_owner_that_was_replaced_while_it_wrote_commits_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next owner may have cancelled the epoch. No reader expects it in the table."""
    commit(lake.opened(), 0)
    owns = [True]

    def confirm() -> None:
        if not owns[0]:
            raise StoreError("HOME_TAKEN_OVER", "another process owns it", hint="end")

    def written(target: LakeTarget, epoch: int, rows: Any, unfit: Any, data: Path, *, few: bool) -> Any:
        path = data / f"{epoch}.parquet"
        pq.write_table(pa.table({"id": pa.array([epoch], pa.int64())}), path)
        file = DataFile(name=path.name, rows=1, size_bytes=path.stat().st_size, modified_ms=0, partition={})
        owns[0] = epoch == 1  # it is suspended while Spark writes the second epoch
        return SimpleNamespace(files=(file,), folder=path, lacks_rows=False)

    monkeypatch.setattr(LakeTarget, "_written", written)
    home = SimpleNamespace(identity="home", store=SimpleNamespace(require_charge=confirm))
    target = target_of(lake.declared(), "out", cast(Any, SimpleNamespace(home=home)), cast(Any, None))
    rows = SimpleNamespace(schema=SCHEMA)
    assert target.deliver(EpochNumber(1), cast(Any, rows)) is None
    assert outcome(lambda: target.deliver(EpochNumber(2), cast(Any, rows))) == "HOME_TAKEN_OVER"
    assert lake.read() == [0, 1]
    assert target.visible() == 2


def test_a_table_knows_its_epochs(lake: Lake) -> None:
    """Those without rows, too, and those before and after commits of other programs."""
    commit(lake.opened(), 0)
    lake.add_by_another_program()
    commit(lake.opened(), 1)
    commit(lake.opened(), 3, rows=False)
    assert lake.read() == [-1, 0, 1]
    assert (lake.opened().progress.below, lake.opened().progress.ever) == (4, 4)
    lake.add_by_another_program()
    assert lake.opened().progress.below == 4


def test_of_two_commits_of_one_epoch_one_counts(lake: Lake) -> None:
    commit(lake.opened(), 0)
    one, other = lake.opened(), lake.opened()
    commit(one, 1)
    with pytest.raises(CommitConflict):
        commit(other, 1, attempt="b")
    assert lake.read() == [0, 1]


def test_without_the_mechanism_the_epoch_is_there_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with it off: no application transaction in Delta, commits that repeat themselves in Iceberg."""
    monkeypatch.setattr(delta, "CommitProperties", lambda **given: CommitProperties())
    monkeypatch.setattr(iceberg, "_REPEATS", "unknown")
    commit(lake.opened(), 0)
    one, other = lake.opened(), lake.opened()
    commit(one, 1)
    commit(other, 1, attempt="b")
    assert lake.read() == [0, 1, 1]


def test_a_table_that_was_returned_to_an_older_version_lacks_its_newer_epochs(lake: Lake) -> None:
    for epoch in range(4):
        commit(lake.opened(), epoch)
    lake.undo(2)
    opened = lake.opened()
    assert (lake.read(), opened.progress.below, opened.progress.ever) == ([0, 1], 2, 4)
    commit(opened, 2, attempt="b")
    assert (lake.opened().progress.below, lake.opened().progress.ever) == (3, 4)
    commit(lake.opened(), 3, attempt="b")
    assert lake.read() == [0, 1, 2, 3]


def test_a_table_without_its_old_history_knows_its_epochs(lake: Lake) -> None:
    """Old snapshots are removed, or the log begins with a checkpoint."""
    commit(lake.opened(), 0)
    commit(lake.opened(), 1, rows=False)
    lake.add_by_another_program()
    if lake.kind == "delta":
        table = DeltaTable(lake.folder / "t")
        table.create_checkpoint()
        for version in range(table.version()):
            (lake.folder / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    else:
        loaded = lake.catalog().load_table("shop.t")
        oldest = min(loaded.snapshots(), key=lambda s: s.sequence_number or 0)
        loaded.maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()
    assert lake.opened().progress.below == 2


def test_a_table_of_another_home_is_refused(lake: Lake) -> None:
    commit(lake.opened(), 0)
    with pytest.raises(TableOfAnother):
        lake.table("another").open()
    with pytest.raises(HomeError) as refused:
        LakeTarget(lake.declared(), lambda: lake.table("another"), "out", "another/out", lambda: None).visible()
    assert refused.value.condition == "TABLE_OF_ANOTHER"


def test_a_table_with_other_partitions_is_refused(lake: Lake) -> None:
    lake.opened()
    opened = lake.table(partition_by="id").open()
    assert opened is not None
    with pytest.raises(TableUnfit, match="partitioned by nothing, and the sink by id"):
        opened.require_fit(SCHEMA)


def test_a_table_without_a_column_is_refused(lake: Lake) -> None:
    opened = lake.opened()
    path = opened.data / "more.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "more": ["x"]}), path)
    file = DataFile(name=path.name, rows=1, size_bytes=path.stat().st_size, modified_ms=0, partition={})
    columns = StructType().add("id", LongType()).add("more", StringType())

    def append() -> None:
        """Delta's columns are compared before a commit, and Iceberg's in it."""
        opened.require_fit(columns)
        opened.commit(EpochNumber(0), [file], EpochNumber(1))

    with pytest.raises(TableUnfit, match="more"):
        append()
    assert lake.read() == []


@pytest.mark.parametrize(
    ("columns", "configuration", "reason"),
    [
        ([pa.field("id", pa.int64())], {}, "column id has type long, and the results have integer"),
        ([pa.field("id", pa.int32(), nullable=False)], {}, "its column id takes no null"),
        ([pa.field("id", pa.int32())], {"delta.constraints.positive": "id > 0"}, "delta.constraints.positive"),
    ],
)
def test_a_delta_table_of_somebody_else_that_does_not_fit(
    columns: list[pa.Field], configuration: dict[str, str | None], reason: str, tmp_path: Path
) -> None:
    DeltaTable.create(tmp_path / "t", pa.schema(columns), configuration=configuration, raise_if_key_not_exists=False)
    opened = Lake("delta", tmp_path).opened()
    with pytest.raises(TableUnfit, match=reason):
        opened.require_fit(StructType().add("id", IntegerType()))


def test_an_older_copy_of_a_delta_table_in_its_place_is_noticed(tmp_path: Path) -> None:
    """By the process that has the newer one open."""
    lake = Lake("delta", tmp_path)
    commit(lake.opened(), 0)
    table = lake.table()
    commit(table.open() or lake.opened(), 1)
    newest = table.open()
    assert newest is not None
    assert newest.progress.below == 2
    max((tmp_path / "t" / "_delta_log").glob("*.json")).unlink()
    older = table.open()
    assert older is not None
    assert older.progress.below == 1


def test_a_restore_that_names_a_time(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    for epoch in range(3):
        commit(lake.opened(), epoch)
    commits = DeltaTable(tmp_path / "t").history()
    restored = {"version": 9, "timestamp": 0, "operation": "RESTORE"}
    for told in ({"datetime": str(commits[1]["timestamp"])}, {"version": str(commits[1]["version"])}):
        found = delta._epoch_of([{**restored, "operationParameters": told}, *commits], "falkirk/home/out")
        assert found in (1, 2) if commits[0]["timestamp"] == commits[1]["timestamp"] else found == 1
    with pytest.raises(TableUnfit, match="names no version"):
        delta._epoch_of([{**restored, "operationParameters": {"timestamp": "noon"}}, *commits], "falkirk/home/out")


def test_a_catalog_that_fails_hides_its_password() -> None:
    properties = {"type": "sql", "uri": "postgresql+psycopg://me:secret@127.0.0.1:1/none"}
    to = fk.Iceberg("shop.t", "lake", properties)
    with pytest.raises(SparkError) as failed:
        LakeTarget(to, lambda: IcebergTable(to, "home", "out"), "out", "home/out", lambda: None).visible()
    assert failed.value.condition == "RELEASE_FAILED"
    assert "secret" not in str(failed.value) + repr(to)


def test_a_remote_location_is_refused() -> None:
    with pytest.raises(TableUnfit, match="only folders"):
        iceberg._local("s3://lake/t")
    assert iceberg._local("file:///lake/t%20t") == iceberg._local("file:/lake/t t") == Path("/lake/t t")


@pytest.mark.parametrize(
    ("declare", "condition"),
    [
        (lambda: fk.Delta("s3://me:secret@lake/t"), "TABLE_PATH_INVALID"),
        (lambda: fk.Delta(""), "TABLE_PATH_INVALID"),
        (lambda: fk.Delta("t", partition_by=["a", "a"]), "KEY_INVALID"),
        (lambda: fk.Iceberg("t"), "TABLE_NAME_INVALID"),
        (lambda: fk.Iceberg("shop.t", ""), "CATALOG_INVALID"),
        (lambda: fk.Iceberg("shop.t", properties={"uri": 1}), "CATALOG_INVALID"),  # type: ignore[dict-item]
    ],
)
def test_declarations_that_are_refused(declare: Callable[[], object], condition: str) -> None:
    with pytest.raises(fk.DefinitionError) as refused:
        declare()
    assert refused.value.condition == condition
    assert "secret" not in str(refused.value)


def test_a_password_does_not_change_the_form_of_results() -> None:
    one = fk.Iceberg("shop.t", "lake", {"uri": "postgresql://me:one@host/lake"})
    other = fk.Iceberg("shop.t", "lake", {"uri": "postgresql://me:two@host/lake", "token": "t"})
    moved = fk.Iceberg("shop.t", "lake", {"uri": "postgresql://me:two@elsewhere/lake"})
    assert one.written_as == other.written_as != moved.written_as


def _sink(to: fk.Delta | fk.Iceberg) -> Any:
    return SimpleNamespace(to=to, name="out", reads="sales", where=to.where)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = _sink(Lake(kind, tmp_path).declared())
    planning.check_package(sink)
    monkeypatch.setattr(planning, "find_spec", lambda name: None)
    with pytest.raises(fk.DefinitionError) as missing:
        planning.check_package(sink)
    assert missing.value.condition == "PACKAGE_MISSING"
    assert missing.value.parameters["package"] == {"delta": "deltalake", "iceberg": "pyiceberg"}[kind]


@pytest.mark.parametrize(
    ("kind", "by", "columns", "column"),
    [
        ("delta", (), StructType().add("a b", LongType()), "a b"),
        ("delta", "day", StructType().add("id", LongType()), "day"),
        ("iceberg", "price", StructType().add("id", LongType()).add("price", DoubleType()), "price"),
        ("delta", "id", StructType().add("id", LongType()), "id"),
        ("iceberg", (), StructType().add("wait", DayTimeIntervalType()), "wait"),
    ],
)
def test_columns_that_a_table_can_not_have(
    kind: str, by: str, columns: StructType, column: str, tmp_path: Path
) -> None:
    with pytest.raises(fk.DefinitionError) as unfit:
        planning.check_table_columns(_sink(Lake(kind, tmp_path).declared(partition_by=by)), columns)
    assert (unfit.value.condition, unfit.value.parameters["column"]) == ("COLUMN_UNFIT", column)


@pytest.mark.parametrize("kind", KINDS)
def test_the_checker_says_that_it_does_not_read_tables(kind: str, tmp_path: Path) -> None:
    nothing: Any = None
    assert f"{kind.capitalize()} tables" in str(
        output_place(Lake(kind, tmp_path).declared(), nothing, nothing, nothing)
    )
