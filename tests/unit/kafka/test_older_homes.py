"""An older copy of a home, which not every sink shows at once: one does not answer, or its processor waits."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import HomeError, LogError
from falkirk.runtime.spark.application.batches import Batches
from falkirk.runtime.spark.sinks import release
from falkirk.theory.ids import EpochNumber
from tests.support import wait_until
from tests.unit.epochs.test_backpressure import session
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
    opening = None if waits_for == "a live region" else "begun"
    live = SimpleNamespace(region=SimpleNamespace(name="l"), opening=opening, compare=lambda: False)
    batches = Batches(
        regions={"b": cast(Any, world.batch)}, logs=cast(Any, None), files=(), releasers=(world.releaser,)
    )  # fmt: skip
    home = SimpleNamespace(may_delete=False)

    def sweep() -> None:
        batches.sweep([cast(Any, live)], recovery.down.errors, cast(Any, home))
        assert world.batch.strays.finish(10)

    sweep()
    assert (world.path / "4-aa").exists() == bool(waits_for)
    assert home.may_delete == (not waits_for)
    live.opening, world.sink.is_away, world.releaser._not_before_s = "begun", False, 0.0
    world.complete(1)
    world.release(recovery)
    (world.path / "5-aa").mkdir()  # an epoch that is under way
    sweep()
    assert not (world.path / "4-aa").exists()
    assert (world.path / "5-aa").exists()


@pytest.mark.parametrize(
    ("condition", "is_left_out"),
    [("SINK_UNSETTLED", False), ("SINK_EXPIRED", False), ("EXPRESSION_FAILED", True)],
)
@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_a_region_is_waited_for_that_is_tried_again_or_down_because_the_home_may_be_older(
    world: World, condition: str, is_left_out: bool
) -> None:
    """Somebody who keeps writing into its output delays its comparison with the home. If records expired, a newer home
    may have deleted them. A region that stays down for another reason compares nothing."""
    world.start(history=EPOCHS)
    live = SimpleNamespace(region=SimpleNamespace(name="l"), opening=None, compare=lambda: False)
    home = SimpleNamespace(may_delete=False)
    batches = Batches(regions={}, logs=cast(Any, None), files=(), releasers=(world.releaser,))
    batches.sweep([cast(Any, live)], {"l": LogError(condition, "no")}, cast(Any, home))
    assert home.may_delete == is_left_out


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_a_sink_that_was_away_is_asked_again_although_there_is_nothing_to_release(world: World, is_older: bool) -> None:
    """The batch may be idle for hours, or down. Until then, nothing in the home that no record names is deleted."""
    world.sink.is_away = True
    world.start(history=EPOCHS)
    home = SimpleNamespace(may_delete=False)
    batches = Batches(regions={}, logs=cast(Any, None), files=(), releasers=(world.releaser,))

    def sweep() -> bool:
        batches.sweep([], {}, cast(Any, home))
        return home.may_delete

    assert not sweep()
    world.sink.is_away, world.sink.has = False, EPOCHS + is_older
    assert not sweep(), "there is a pause first"
    world.releaser._not_before_s = 0.0
    if is_older:
        with pytest.raises(HomeError) as refused:
            wait_until(sweep, 10, "the comparison")
        assert refused.value.condition == "SINK_AHEAD"
    else:
        wait_until(sweep, 10, "the comparison")


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_a_sink_that_does_not_answer_delays_nobody_and_is_asked_at_intervals(world: World) -> None:
    world.sink.is_away = True
    world.start(history=EPOCHS)
    asked, goes_on, visible = list[int](), threading.Event(), world.sink.visible

    def hanging() -> int:
        asked.append(1)
        assert goes_on.wait(60)
        return visible()

    world.sink.visible = hanging  # type: ignore[method-assign]
    world.releaser._not_before_s = 0.0
    for _ in range(3):
        assert not world.releaser.compare()
    assert world.releaser.visible() == EPOCHS, "all epochs, until they are known"
    goes_on.set()
    wait_until(lambda: not world.releaser.compare() and world.releaser.detail, 10, "the error")
    for _ in range(3):
        assert not world.releaser.compare()
    assert len(asked) == 1


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_before_its_first_comparison_a_release_tells_nothing_of_what_readers_have_seen(world: World) -> None:
    """An earlier process may have published more than this one has been asked to publish."""
    world.sink.is_away = True
    world.start(history=EPOCHS)
    world.complete(2)
    goes_on, visible = threading.Event(), world.sink.visible
    world.sink.visible = lambda: (goes_on.wait(60), visible())[1]  # type: ignore[method-assign]
    world.releaser._not_before_s = 0.0
    world.releaser.release(session(), EpochNumber(EPOCHS), EpochNumber(EPOCHS + 1))
    assert world.releaser.visible() == EPOCHS + 2
    goes_on.set()


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_sinks_are_not_compared_while_an_epoch_goes_straight_to_its_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both change what the target knows of the topic. A release does not wait behind a long delivery either."""
    monkeypatch.setattr(release, "_TURN_S", 0.01)
    world.sink.is_away = True
    recovery = world.start(history=EPOCHS)
    world.complete(1)
    world.sink.is_away, asked, visible = False, list[int](), world.sink.visible
    monkeypatch.setattr(world.sink, "visible", lambda: (asked.append(1), visible())[1])
    world.releaser._not_before_s = 0.0
    with world.releaser._sending:  # as `send` does
        for _ in range(3):
            world.releaser.release(session(), EpochNumber(EPOCHS), EpochNumber(EPOCHS + 1))
            assert world.releaser._thread is not None
            world.releaser._thread.join(10)
            assert not world.releaser._thread.is_alive()
        assert not asked
    world.release(recovery)
    assert world.sink.sent[-1] == EPOCHS
