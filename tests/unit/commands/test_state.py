"""`falkirk state`: the saved state of a batch from its files, and the processors without a state.

`tests/integration/inference/test_judge.py` reads that of a live region.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from falkirk.cli import main
from falkirk.errors import FalkirkError
from falkirk.plan.region import RegionLogs
from falkirk.platform.data import DataPath
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.checkpoint import keep_only
from falkirk.theory.ids import BatchId, CheckpointNumber, EpochNumber, LogId, Offset
from falkirk.user_tools.commands import kept_state
from falkirk.user_tools.commands.kept_state import READ_TRIES, batch_states, live_state, newest_checkpoint
from tests.strays import drop_strays
from tests.support import on_disk
from tests.unit.commands.told_origins import HOP, Shop, commit, file_of, made, shape


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch)


def save(shop: Shop, parts: dict[str, list[dict[str, Any]]], notes: tuple[str, ...] = ()) -> int:
    """Complete an epoch of `report`, and save a state with these parts; the part "" is the result itself."""
    log = EpochLog(LogId.of_epochs("report"), "report", shop.home.data_of("report"), shop.home.store)
    number = log.decide({}, {}, {}, 0.0)
    result, folder = log.new_folder(number), log.new_folder(number, "state")
    for part, rows in parts.items():
        path = on_disk(log.path(folder if part else result) / part)
        path.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), path / "part-0.parquet")
    for note in notes:
        (log.path(folder) / f"{note}.json").write_text("{}")
    on_disk(log.path(result)).mkdir(exist_ok=True)
    log.record(number, folder=result, rows=0, dead=0, state=result if "" in parts else folder, saved=True)
    return number


def states(shop: Shop, *key: str, limit: int = 20) -> list[Any]:
    (batch,) = [b for b in shape().batches if b.name == "report"]
    return list(batch_states(batch, shop.home, key, limit))


ROWS = [{"item": "tea", "n": 3, "__falkirk_row": 0}, {"item": "jam", "n": 1, "__falkirk_row": 1}]


def test_the_result_of_a_batch_may_be_its_state(shop: Shop) -> None:
    save(shop, {"": [{"item": "old", "n": 1}]})
    number = save(shop, {"": ROWS})
    (found,) = states(shop)
    assert (found.checkpoint, found.columns, found.count, found.what) == (number, ("item", "n"), 2, "")
    assert found.rows == ({"item": "tea", "n": 3}, {"item": "jam", "n": 1})
    (found,) = states(shop, "tea")
    assert (found.rows, found.count) == (({"item": "tea", "n": 3},), 1)
    assert states(shop, "tea", "3")[0].count == 1
    assert states(shop, "tea", "4")[0].count == 0
    (found,) = states(shop, limit=1)
    assert (len(found.rows), found.count) == (1, 2)


def test_a_state_of_several_parts_names_each_and_what_can_not_be_shown(shop: Shop) -> None:
    save(shop, {"own": ROWS, "window-1": [{"user": 7, "seen": None}]}, notes=("iterate-1",))
    own, window, loops = states(shop)
    assert [each.what for each in (own, window, loops)] == ["", "window-1", "iterate-1"]
    assert window.rows == ({"user": 7, "seen": None},)
    assert "can't show" in loops.note


def test_the_command_says_of_which_epoch_the_state_is(shop: Shop) -> None:
    save(shop, {"": [*ROWS, {"item": "\x1b[2J" + "x" * 500, "n": 2}]})
    file = file_of(shop)
    told = CliRunner().invoke(main, ["state", str(file), "report", "-n", "2"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert told.output.startswith("state of report at epoch 0, made ")
    assert "3 rows; the first 2 are shown" in told.output
    told = CliRunner().invoke(main, ["state", str(file), "report"], catch_exceptions=False)
    assert "\x1b" not in told.output
    told = CliRunner().invoke(main, ["state", str(file), "report", "--key", "jam", "--json"], catch_exceptions=False)
    (found,) = json.loads(told.output)
    assert (found["checkpoint"], found["rows"]) == (0, [{"item": "jam", "n": 1}])
    for name, condition in (("weights", "STATE_MISSING"), ("nobody", "REGION_UNKNOWN")):
        told = CliRunner().invoke(main, ["state", str(file), name])
        assert told.exit_code == 1, condition


def test_a_torn_state_is_refused(shop: Shop) -> None:
    save(shop, {"": ROWS})
    (file,) = shop.home.checkpoint("report").glob("*/*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(FalkirkError) as caught:
        states(shop)
    assert caught.value.condition == "STATE_DAMAGED"


def test_a_region_without_a_checkpoint_or_without_a_state_has_none(shop: Shop) -> None:
    (sales,) = [r for r in shape().regions if r.name == "sales"]

    def refused() -> str:
        with pytest.raises(FalkirkError) as caught:
            newest_checkpoint(sales, shop.home)
        assert caught.value.condition == "STATE_MISSING"
        return str(caught.value)

    assert "it has made no checkpoint yet" in refused()
    commit(shop, "sales", 0, {HOP: {0: 1}})
    commit(shop, "sales", 1, {HOP: {0: 2}})
    assert "it has no step with a state" in refused()
    (shop.home.checkpoint("sales") / "state").mkdir()
    assert newest_checkpoint(sales, shop.home) == 1
    (shop.home.checkpoint("sales") / "commits/1").write_text("torn")
    assert newest_checkpoint(sales, shop.home) == 0, "the newest that is whole"


def stateful(shop: Shop, operator: str = "StatefulStreamlineAggregate") -> RegionLogs:
    """Give `sales` two checkpoints with a state of an operator."""
    (sales,) = [r for r in shape().regions if r.name == "sales"]
    commit(shop, "sales", 0, {HOP: {0: 1}})
    commit(shop, "sales", 1, {HOP: {0: 2}})
    folder = shop.home.checkpoint("sales") / "state" / "0" / "_metadata"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text("v1\n" + json.dumps({"operatorInfo": {"operatorId": 0, "operatorName": operator}}))
    return sales


def test_a_checkpoint_that_is_deleted_while_spark_reads_it_is_read_as_the_next_one(shop: Shop) -> None:
    """A running region without input deletes each checkpoint that equals the next one."""
    sales, folder, tried = stateful(shop), shop.home.checkpoint("sales"), list[int]()

    def read(folder: Path, number: BatchId, key: object, limit: int) -> Any:
        tried.append(number)
        if number < last:
            commit(shop, "sales", number + 1, {HOP: {0: 2}})
            (folder / "commits" / str(number)).unlink()
            raise AnalysisException("[STDS_COMMITTED_BATCH_UNAVAILABLE] No committed batch found")
        return ("item", "count"), 1, 1, ({"item": "tea", "count": 2},)

    last = 3
    (found,) = live_state(sales, shop.home, read, (), 5)
    assert (tried, found.checkpoint, found.count, found.covers) == ([1, 2, 3], 3, 1, {HOP: {0: 2}})
    last = 99
    with pytest.raises(FalkirkError) as caught:
        live_state(sales, shop.home, read, (), 5)
    assert caught.value.condition == "STATE_UNREADABLE"
    assert len(tried) == 3 + READ_TRIES
    assert folder.exists()


def test_the_state_of_other_steps_and_what_spark_can_not_read_is_refused(shop: Shop) -> None:
    def read(*arguments: object) -> Any:
        raise AnalysisException("[SOMETHING_ELSE] torn")

    sales = stateful(shop)
    for operator, condition in (("StatefulStreamlineAggregate", "STATE_DAMAGED"), ("transform", "STATE_UNREADABLE")):
        metadata = shop.home.checkpoint("sales") / "state/0/_metadata/metadata"
        metadata.write_text("v1\n" + json.dumps({"operatorInfo": {"operatorName": operator}}))
        with pytest.raises(FalkirkError) as caught:
            live_state(sales, shop.home, read, (), 5)
        assert caught.value.condition == condition


def test_the_only_checkpoint_is_replaced_while_the_command_looks_at_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not true that the region has made no checkpoint yet."""
    sales, folder, before = stateful(shop), shop.home.checkpoint("sales"), checkpoint.damage
    keep_only(folder, (BatchId(1),))

    def replaced(place: Path, number: BatchId, *topics: LogId) -> str | None:
        if number == 1:
            commit(shop, "sales", 2, {HOP: {0: 2}})
            keep_only(folder, (BatchId(2),))
        return before(place, number, *topics)

    monkeypatch.setattr(checkpoint, "damage", replaced)
    assert newest_checkpoint(sales, shop.home) == 2


def test_a_batch_deletes_its_state_while_the_command_reads_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next state is shown. The home is not damaged."""
    save(shop, {"own": [{"item": "old", "n": 1}]})
    before, place = kept_state._rows, shop.home.data_of("report")
    log = EpochLog(LogId.of_epochs("report"), "report", place, shop.home.store)

    def meanwhile(folder: DataPath, *arguments: Any) -> Any:
        if not (epochs := log.epochs())[1:]:
            number = save(shop, {"own": ROWS})
            log.drop_states_below(EpochNumber(number))
            assert not log.path(str(epochs[0].state)).exists()
        return before(folder, *arguments)

    monkeypatch.setattr(kept_state, "_rows", meanwhile)
    (found,) = states(shop)
    assert (found.checkpoint, found.count) == (1, 2)


def test_a_rollback_deletes_the_state_before_the_command_reads_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    save(shop, {"own": ROWS})
    save(shop, {"own": [{"item": "newest", "n": 1}]})
    before, store = EpochLog.state, shop.home.store

    def meanwhile(log: EpochLog, epoch: Epoch) -> Path:
        if epoch.number == 1:
            store.open_recovery("asked", {"report": CheckpointNumber(0)}, voids=[(log.name, 0, Offset(1), Offset(2))])
            drop_strays(EpochLog(log.name, "report", log.folder, store), store)
        return before(log, epoch)

    monkeypatch.setattr(EpochLog, "state", meanwhile)
    (found,) = states(shop)
    assert (found.checkpoint, found.count) == (0, 2)
