"""An older copy of a home, which not every sink shows at once: one does not answer, or its processor waits."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import HomeError
from falkirk.spark_runtime.application.batches import Batches
from tests.unit.kafka import test_sink_ages as ages
from tests.unit.kafka.test_sink_ages import EPOCHS, World

world = ages.world


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_a_sink_that_is_ahead_and_away_at_the_start_is_refused_later(world: World, new: int) -> None:
    """The home has completed more epochs meanwhile, perhaps as many as the sink has."""
    world.sink.has, world.sink.sent, world.sink.is_away = EPOCHS + 2, [], True
    recovery = world.start()
    assert recovery.turn() is None
    world.complete(new)
    world.sink.is_away, world.releaser._not_before_s = False, 0.0
    with pytest.raises(HomeError) as refused:
        world.release(recovery)
    assert (refused.value.condition, refused.value.parameters["there"]) == ("SINK_AHEAD", EPOCHS)
    assert not world.sink.sent


@pytest.mark.parametrize("waits_for", ["a live region", "a sink", ""])
@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_folders_without_a_record_stay_until_all_outputs_are_compared(world: World, waits_for: str) -> None:
    """Somebody restored an older backup of the home's database. A live region finds it by its output (`SINK_AHEAD`)
    after the batch is restored, or much later: it may wait for a view. The right backup has a record of the folder."""
    (world.path / "4-aa").mkdir()
    world.sink.is_away = waits_for == "a sink"
    recovery = world.start(history=EPOCHS)
    live = SimpleNamespace(region=SimpleNamespace(name="l"), opening=None if waits_for == "a live region" else "begun")
    batches = Batches(
        regions={"b": cast(Any, world.batch)}, logs=cast(Any, None), files=(), releasers=(world.releaser,)
    )  # fmt: skip
    home = SimpleNamespace(may_sweep=False)
    batches.sweep([cast(Any, live)], recovery.down, cast(Any, home))
    assert (world.path / "4-aa").exists() == bool(waits_for)
    assert home.may_sweep == (not waits_for)
    live.opening, world.sink.is_away, world.releaser._not_before_s = "begun", False, 0.0
    world.complete(1)
    world.release(recovery)
    (world.path / "5-aa").mkdir()  # an epoch that is under way
    batches.sweep([cast(Any, live)], recovery.down, cast(Any, home))
    assert not (world.path / "4-aa").exists()
    assert (world.path / "5-aa").exists()
