"""An application rolls back while a command reads it, and makes another checkpoint with the number of a dropped one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from falkirk.cli import main
from falkirk.errors import FalkirkError
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.theory.ids import BatchId, CheckpointNumber, LogId
from falkirk.theory.times import TopicPartition
from falkirk.user_tools.commands import state as command
from falkirk.user_tools.commands.history.application import OfflineApplication
from falkirk.user_tools.commands.history.unchanged import TRIES, read_unchanged
from tests.unit.commands.test_state import stateful
from tests.unit.commands.told_origins import HOP, Shop, commit, file_of, made, shape

#: The end of the input of checkpoint 1 before the rollback, and of the other one with its number.
FORMER, PRESENT = 2, 9


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch)


def roll_back(shop: Shop, region: str = "sales", ends: int = PRESENT) -> None:
    """Roll a region back to checkpoint 0, as the application does, and make another checkpoint 1."""
    store = shop.home.store
    number = store.open_recovery("asked for", {region: CheckpointNumber(0)})
    checkpoint.rewind(shop.home.checkpoint(region), BatchId(0))
    store.advance_recovery(number, "restored")
    store.open_incarnation(region, CheckpointNumber(0))
    store.advance_recovery(number, "done")
    commit(shop, region, 1, {HOP if region == "sales" else "orders": {0: ends}})


def once_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, do: Callable[[], None], *, at: int = 1, times: int = 1
) -> None:
    """Let something happen right before this call of a function, and before as many calls in all."""
    real, calls = getattr(owner, name), 0

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if at <= calls < at + times:
            do()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, called)


def visit_of(shop: Shop) -> OfflineApplication:
    visit = cast(Any, object.__new__(OfflineApplication))
    place = SimpleNamespace(home=shop.home, oldest=lambda topic: {0: 0, 1: 0})
    regions = {r.name: r for r in shape().regions if r.name in ("sales-by-item", "sales")}
    visit.shape, visit._store = shape(), shop.home.store
    visit.regions = {name: RegionAtRest(logs, cast(Any, place)) for name, logs in regions.items()}
    return cast(OfflineApplication, visit)


def test_a_point_has_one_checkpoint(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input of a checkpoint is read first, its time later."""
    for number, ends in enumerate((1, FORMER)):
        commit(shop, "sales", number, {HOP: {0: ends}})
    calls = len(visit_of(shop).checkpoints()["sales"])
    once_before(monkeypatch, checkpoint, "committed_at_s", lambda: roll_back(shop), at=calls - 1)
    newest = visit_of(shop).checkpoints()["sales"][-1]
    assert newest.read.length(TopicPartition(topic=LogId(HOP), partition=0)) == PRESENT
    assert newest.made_at_s == checkpoint.committed_at_s(shop.home.checkpoint("sales"), BatchId(1))


def test_the_points_of_all_regions_are_from_one_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both regions go back, after the points of the first one are read, and before those of the second one."""
    for region, log in (("sales-by-item", "orders"), ("sales", HOP)):
        for number, ends in enumerate((1, FORMER)):
            commit(shop, region, number, {log: {0: ends}})

    def both() -> None:
        for region in ("sales-by-item", "sales"):
            roll_back(shop, region)

    once_before(monkeypatch, RegionAtRest, "checkpoints", both, at=2)
    checkpoints = visit_of(shop).checkpoints()
    read = [checkpoints[region][-1].read for region in ("sales-by-item", "sales")]
    ends = [
        r.length(TopicPartition(topic=LogId(log), partition=0)) for r, log in zip(read, ("orders", HOP), strict=True)
    ]
    assert ends == [PRESENT, PRESENT]


def test_why_names_the_checkpoint_that_covers_the_result_now(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is in a record that the rollback made invalid. Before and after, no checkpoint covers it."""
    for _ in range(5):
        shop.send(HOP, {"item": "tea"}, by="0.0.0")
    name = shop.send("sales", {"item": "tea", "count": 3}, by="0.0.4")
    for number, ends in enumerate((1, FORMER)):
        commit(shop, "sales", number, {HOP: {0: ends}})

    def cancelled() -> None:
        store = shop.home.store
        number = store.open_recovery("asked for", {}, voids=[(LogId("sales"), 0, 0, 1)])  # type: ignore[list-item]
        store.advance_recovery(number, "done")
        roll_back(shop)

    once_before(monkeypatch, RegionAtRest, "checkpoints", cancelled)
    file = file_of(shop)
    told = CliRunner().invoke(main, ["why", str(file), name, "--no-recompute", "--json"], catch_exceptions=False)
    found = json.loads(told.output)
    assert found["record"]["void"], "as of the same time as the checkpoints"
    assert found["origin"]["checkpoint"]["number"] == 1


def test_the_state_and_what_it_covers_are_of_one_checkpoint(shop: Shop) -> None:
    sales, tries = stateful(shop), list[BatchId]()
    commit(shop, "sales", 1, {HOP: {0: FORMER}})

    def read(folder: Path, number: BatchId, key: object, limit: int) -> Any:
        if not tries:
            roll_back(shop)
        tries.append(number)
        return ("item", "n"), 1, 1, ({"item": "tea", "n": checkpoint.end_offsets(folder, number, LogId(HOP))[0]},)

    (found,) = command.live_state_unchanged(sales, shop.home, read, (), 5)
    assert len(tries) == 2
    assert (found.covers, found.rows) == ({HOP: {0: PRESENT}}, ({"item": "tea", "n": PRESENT},))


def test_an_error_that_a_recovery_caused_is_read_again(shop: Shop) -> None:
    tries = 0

    def read() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            roll_back(shop)
            raise FalkirkError("STATE_MISSING", "the checkpoint is gone")
        return tries

    assert read_unchanged(shop.home.store, read) == 2


def test_an_application_that_restores_without_end_is_an_error(shop: Shop) -> None:
    tries: list[None] = []

    def read() -> None:
        tries.append(None)
        roll_back(shop)

    with pytest.raises(FalkirkError) as caught:
        read_unchanged(shop.home.store, read)
    assert (caught.value.condition, len(tries)) == ("RECOVERIES_MEANWHILE", TRIES)
