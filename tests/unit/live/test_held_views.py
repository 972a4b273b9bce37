"""Views in memory: an epoch is loaded while regions start, and published once no failure can take it back."""

import queue
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from falkirk.errors import StoreError
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE
from falkirk.runtime.spark.application import views
from falkirk.runtime.spark.application.views import HeldViews
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.theory.ids import EpochNumber, LogId
from tests.clock import MovedClock
from tests.support import wait_until

WEIGHTS = LogId("weights")


class Log:
    """The epochs of one batch. Attributes: complete: their numbers. void: those that do not count any more."""

    region = "weights"

    def __init__(self, *complete: int) -> None:
        self.complete, self.void, self.is_away = list(complete), set[int](), False

    def epochs(self) -> tuple[Any, ...]:
        return tuple(SimpleNamespace(number=EpochNumber(n), direct=False) for n in self.complete)

    def end(self) -> EpochNumber:
        if self.is_away:
            raise StoreError("STORE_AWAY", "it is away", hint="wait")
        return EpochNumber(self.complete[-1] + 1 if self.complete else 0)

    def any_counts(self, first: int, last: int) -> bool:
        return bool(set(range(first, last)) - self.void)

    def results_if_there(self, epoch: Any) -> Path | None:
        return Path(str(epoch.number)) if epoch.number in self.complete else None


class World:
    """Views over one log. Attributes: loaded, published: epochs, in order. told: the batches of loads that ended."""

    def __init__(self, log: Log) -> None:
        self.log, self.told = log, list[str]()
        self.loaded, self.published = list[int](), list[int]()
        view: Any = SimpleNamespace(log=WEIGHTS, name="weights", schema="word STRING", handle="h")
        self.region: Any = SimpleNamespace(views=(view,), steps=tuple)
        self.clock = MovedClock()
        context: Any = SimpleNamespace(
            session=SimpleNamespace(
                sparkContext=SimpleNamespace(
                    setLocalProperty=lambda name, value: None, setJobGroup=lambda group, text, interruptOnCancel: None
                )
            ),
            clock=self.clock,
        )
        self.views = HeldViews([self.region], context, {WEIGHTS: log}, self.told.append)  # type: ignore[dict-item]

    def update(self, settled: int) -> bool:
        """Update after all loads have ended."""
        loads = [loading.done for loading in self.views._loading.values()]
        wait_until(lambda: all(load.done() for load in loads), 10, "the loads")
        return self.views.update(lambda name: settled, [])  # type: ignore[arg-type, return-value]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(Log(0, 1, 2))
    monkeypatch.setattr(views, "keys_of", lambda regions: {WEIGHTS: [[0]]})
    monkeypatch.setattr(views, "read_folders", lambda session, folders, schema: folders)
    monkeypatch.setattr(views, "load_epoch", lambda s, view, epoch, rows, keys: made.loaded.append(epoch))
    monkeypatch.setattr(views, "publish", lambda session, view, epoch: made.published.append(epoch))
    made.views._keys = {WEIGHTS: [[0]]}
    return made


def test_an_epoch_is_loaded_early_and_published_when_it_is_settled(world: World) -> None:
    assert not world.views.are_loading(world.region)
    world.views.load_early()
    assert world.views.are_loading(world.region)
    wait_until(lambda: world.told == ["weights"], 10, "the load")
    assert (world.loaded, world.published) == ([2], [])
    assert world.views.missing(world.region) == ("weights",)
    world.views.load_early()
    assert world.update(3), "a region that waits for it can start"
    assert (world.loaded, world.published) == ([2], [2])
    assert world.views.missing(world.region) == ()
    assert world.views.are_loading(world.region)
    assert not world.update(3), "nothing is new"


def test_an_epoch_that_a_failure_may_take_back_is_not_published(world: World) -> None:
    world.views.load_early()
    assert not world.update(2)
    assert world.published == []
    assert world.update(2), "the epoch before it"
    assert (world.loaded, world.published) == ([2, 1], [1])
    assert not world.update(3)
    assert not world.update(3), "a region can read the view already"
    assert world.published == [1, 2]


def test_an_epoch_that_was_taken_back_meanwhile_is_not_published(world: World) -> None:
    world.views.load_early()
    world.log.void.add(2)
    world.log.complete.append(3)
    assert not world.update(4)
    assert world.update(4)
    assert (world.loaded, world.published) == ([2, 3], [3])


def test_one_whose_files_were_deleted_meanwhile_is_not_published(world: World) -> None:
    world.views._loader.shutdown()  # type: ignore[union-attr]
    ready = views.ThreadPoolExecutor(max_workers=1)
    world.views._loader = ready
    gate = views.Future[None]()
    ready.submit(gate.result)
    world.views.load_early()
    world.log.complete = [3]
    gate.set_result(None)
    assert not world.update(4)
    assert (world.loaded, world.published) == ([], [])
    assert world.update(4)
    assert world.published == [3]


def test_a_load_that_fails_is_repeated_after_a_pause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host looks again at the end of each load, so without a pause it would do nothing else, and fill its log."""
    tries = list[int]()

    def fail(session: object, view: object, epoch: int, *_: object) -> None:
        tries.append(epoch)
        raise PySparkException("the view does not fit into the memory")

    with monkeypatch.context() as patch:
        patch.setattr(views, "load_epoch", fail)
        world.views.load_early()
        for _ in range(5):
            assert not world.update(3)
        assert tries == [2]
        assert not world.views.are_loading(world.region), "batches need not wait for it"
        world.clock.advance(views.LOAD_AGAIN_S)
        for _ in range(5):
            assert not world.update(3)
        assert tries == [2, 2]
    world.log.complete.append(3)
    assert not world.update(4)
    assert world.update(4), "another epoch may fit"
    assert world.published == [3]


def test_a_stop_cancels_the_job_of_a_load_and_frees_the_memory_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks would still run when the session stops, and a load that ends later would fill the memory again."""
    events, begun, cancelled = list[str](), threading.Event(), threading.Event()

    def load(*_: object) -> None:
        begun.set()
        cancelled.wait(30)
        events.append("ended")
        raise PySparkException("cancelled")

    monkeypatch.setattr(views, "load_epoch", load)
    monkeypatch.setattr(views, "cancel_jobs", lambda session, group: cancelled.set())
    monkeypatch.setattr(views, "forget", lambda session, view: events.append("freed"))
    world.views.load_early()
    assert begun.wait(30)
    world.views.stop()
    assert events == ["ended", "freed"]


def test_a_stop_does_not_wait_for_a_load_that_has_not_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cancelled, so it never ends as others do."""
    begun, ended, name = list[Path](), threading.Event(), LogId("prices")

    def load(session: object, view: object, epoch: int, folders: list[Path], keys: object) -> None:
        begun.extend(folders)
        ended.wait(60)

    monkeypatch.setattr(views, "load_epoch", load)
    monkeypatch.setattr(views, "cancel_jobs", lambda session, group: ended.set())
    monkeypatch.setattr(views, "forget", lambda session, view: None)
    monkeypatch.setattr(views, "_STOP_S", 60.0)
    view: Any = SimpleNamespace(log=name, name="prices", schema="word STRING", handle="p")
    world.views._views[name], world.views._logs[name] = view, cast(EpochLog, Log(0))
    world.views.load_early()
    wait_until(lambda: len(begun) == 1, 10, "the first load begins")
    began_s = time.monotonic()
    world.views.stop()
    assert time.monotonic() - began_s < 30
    assert len(begun) == 1


def test_a_store_that_is_away_stops_no_start(world: World) -> None:
    world.log.is_away = True
    world.views.load_early()
    assert not world.views.are_loading(world.region)
    world.log.is_away = False
    assert not world.update(3)
    assert world.update(3)


def test_an_object_store_that_is_away_stops_no_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records read the former epoch meanwhile. Otherwise nothing held would be published."""
    assert not world.update(2)
    assert world.update(2)

    def away(epoch: Any) -> Path | None:
        raise DATA_AWAY.error(where="s3a://shop/weights", reason="refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "results_if_there", away)
        for _ in range(3):
            assert not world.update(3)
        assert world.published == [1]
        assert world.views.missing(world.region) == ()
    world.clock.advance(views.LOAD_AGAIN_S)
    world.update(3)
    world.update(3)
    assert world.published == [1, 2]

    def denied(epoch: Any) -> Path | None:
        raise DATA_UNUSABLE.error(where="s3a://shop/weights", reason="denied")

    monkeypatch.setattr(world.log, "results_if_there", denied)
    world.log.complete.append(3)
    world.update(4)
    with pytest.raises(StoreError, match="denied"):
        world.update(4)


def test_before_the_first_epoch_there_is_nothing_to_load(world: World) -> None:
    world.log.complete = []
    world.views.load_early()
    assert not world.update(0)
    assert not world.views.are_loading(world.region)


@pytest.mark.parametrize("is_loading", [False, True])
def test_batches_wait_for_a_region_whose_views_are_loading(*, is_loading: bool) -> None:
    region: Any = SupervisedRegion.__new__(SupervisedRegion)
    region.live = SimpleNamespace(region=SimpleNamespace(name="answers"), query=None)
    region.status = SimpleNamespace(state="starting", detail="")
    region._missing, region._are_loading = lambda region: ("weights",), lambda region: is_loading
    region._waits = region.waits_for_views()
    assert region.status.state == "waiting"
    assert region.begins() is is_loading
    assert ("memory" in region.status.detail) is is_loading


class Standing:
    """A host that has started, of which nothing runs. Attributes: loads: how often views were loaded early."""

    def __init__(self, *, is_new: bool) -> None:
        self.loads = 0
        host: Any = Host.__new__(Host)
        host._views = SimpleNamespace(update=lambda settled, regions: is_new, load_early=self._load)
        host._recovery = SimpleNamespace(
            release_of=lambda names: None, watermarks=SimpleNamespace(settled_epochs=lambda log: 0)
        )
        host._completed, host._regions, host._once = queue.SimpleQueue[str](), {}, None
        host._units = {"answers": SimpleNamespace(before_start=lambda: True)}
        self.host = host

    def _load(self) -> None:
        self.loads += 1


def test_a_host_loads_views_before_a_region_starts() -> None:
    standing = Standing(is_new=False)
    assert standing.host._before_start("answers")
    assert standing.loads == 1


@pytest.mark.parametrize("is_new", [False, True])
def test_a_region_that_waits_for_a_view_starts_without_the_pause_of_a_turn(*, is_new: bool) -> None:
    standing, began_s = Standing(is_new=is_new), time.monotonic()
    standing.host._completed.put("weights")
    assert not standing.host.wait(60.0 if is_new else 0.2, threading.Event())
    took_s = time.monotonic() - began_s
    assert took_s < 30 if is_new else took_s >= 0.2
