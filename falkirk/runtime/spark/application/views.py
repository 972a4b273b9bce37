"""Views: keeps the newest epochs of views that live regions look up in the memory of the JVM.

An epoch is read only once no failure can take it back, and each region notes it before that (`live/epochs_read.py`). So
a region without other reasons to wait publishes on arrival. A rollback that somebody asks for may void an epoch. Then
the notes say which checkpoints have read it.

While an object store with the epochs is away, records read the former epoch, and the host works on.
"""

import logging
import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass

from falkirk.errors import HomeError, StoreError
from falkirk.errors.spark import JVM_ERRORS, SPARK_ERRORS, first_line
from falkirk.plan.region import Region
from falkirk.platform.deadline import left_s
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.inputs import files_found, read_folders
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.live.views import forget, keys_of, load_epoch, publish
from falkirk.spark_setup.spark import RELEASE_POOL, cancel_jobs
from falkirk.steps.live.lookups import PlannedView
from falkirk.theory.ids import EpochNumber, LogId
from falkirk.theory.times import Natural

log = logging.getLogger("falkirk")


#: An epoch that could not be loaded is tried again after this time. The host looks at once when a load has ended.
LOAD_AGAIN_S = 5.0
#: At a stop, a load whose job was cancelled may take this long to end.
_STOP_S = 5.0


@dataclass(frozen=True, kw_only=True)
class _Loading:
    """An epoch that is read into the memory. Args: done: whether it was still there."""

    epoch: Epoch
    done: "Future[bool]"


class HeldViews:
    """The views of one application.

    Args: logs: of the epochs of all batches. on_loaded: called with the name of a view's batch, in another thread.
    """

    def __init__(
        self, regions: Sequence[Region], context: Context, logs: Mapping[LogId, EpochLog],
        on_loaded: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._context, self._on_loaded = context, on_loaded
        self._views = {view.log: view for region in regions for view in region.views}
        self._logs = {name: logs[name] for name in self._views}
        self._keys = keys_of(regions)
        self._held: dict[LogId, EpochNumber] = {}
        self._loading: dict[LogId, _Loading] = {}
        #: The last epoch of each view that could not be loaded, and when it is tried again.
        self._failed: dict[LogId, tuple[EpochNumber, float]] = {}
        self._group = f"views-{uuid.uuid4().hex[:8]}"
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="falkirk-views") if self._views else None

    def missing(self, region: Region) -> tuple[str, ...]:
        """Return the views of a region of which there is no epoch to read."""
        return tuple(view.name for view in region.views if not self._is_held(view.log))

    def are_loading(self, region: Region) -> bool:
        """Return whether each view of a region has an epoch that can be read soon."""
        return all(self._is_held(view.log) or view.log in self._loading for view in region.views)

    def _is_held(self, name: LogId) -> bool:
        """Return whether an epoch is held. A rollback may have taken it back."""
        if name in self._held and not self._counts(name, self._held[name]):
            del self._held[name]
        return name in self._held

    def _counts(self, name: LogId, epoch: EpochNumber) -> bool:
        """Return whether an epoch is not void."""
        return self._logs[name].any_counts(epoch, EpochNumber(epoch + 1))

    def epochs(self, region: Region) -> dict[LogId, EpochNumber]:
        """Return the epochs that a region reads."""
        return {view.log: self._held[view.log] for view in region.views}

    def load_early(self) -> None:
        """Begin to load the newest epoch of each view, while regions start. Call it when batches have gone back.

        Whether another failure may take an epoch back is known only when all have started: `update` publishes it then.
        """
        for name, view in self._views.items():
            if name not in self._loading and name not in self._held:
                try:
                    epoch = self._newest(name, self._logs[name].end())
                except (StoreError, HomeError) as error:  # `update` raises it where the host can wait
                    log.debug("%s is not loaded early: %s", view.name, first_line(error))
                    continue
                self._begin(view, epoch)

    def update(self, settled: Callable[[LogId], Natural], regions: Collection[LiveRegion]) -> bool:
        """Publish the epochs that were loaded, and begin to load newer ones.

        Args: settled: returns the end of the epochs of a view that no failure takes back.
        Returns: whether a view can be read now, and could not before.
        Raises: StoreError, HomeError: `STATE_DAMAGED`.
        """
        before = set(self._held)
        for name, view in self._views.items():
            end = settled(name)
            if (loading := self._loading.get(name)) is not None and loading.done.done():
                self._take(view, loading, end, regions)
            if name not in self._loading:
                self._begin(view, self._newest(name, end))
        return not self._held.keys() <= before

    def _begin(self, view: PlannedView, epoch: Epoch | None) -> None:
        if epoch is not None and not self._must_wait(view.log, epoch.number):
            assert self._loader is not None, "there are views"
            done, name = self._loader.submit(self._load, view, epoch), self._logs[view.log].region
            self._loading[view.log] = _Loading(epoch=epoch, done=done)
            done.add_done_callback(lambda _: self._on_loaded(name))

    def _has_failed(self, name: LogId, epoch: EpochNumber) -> bool:
        """Return whether an epoch is the last one of its view that could not be loaded."""
        return name in self._failed and self._failed[name][0] == epoch

    def _must_wait(self, name: LogId, epoch: EpochNumber) -> bool:
        """Return whether an epoch could not be loaded just now."""
        return self._has_failed(name, epoch) and self._context.clock.monotonic() < self._failed[name][1]

    def _newest(self, name: LogId, settled: Natural) -> Epoch | None:
        """Return the newest epoch that may be read, unless it is held."""
        end = min(self._logs[name].end(), settled)
        found = next((e for e in reversed(self._logs[name].epochs()) if e.number < end and not e.direct), None)
        return None if found is None or (self._is_held(name) and found.number == self._held[name]) else found

    def _take(self, view: PlannedView, loading: _Loading, settled: Natural, regions: Collection[LiveRegion]) -> None:
        """Publish an epoch that was loaded, if it still may be read. Raises: as `update`; the next call tries again."""
        epoch, is_there = loading.epoch, False
        try:
            is_there = loading.done.result()
        except (*SPARK_ERRORS, *JVM_ERRORS) as error:
            log.warning("epoch %d of %s could not be loaded: %s", epoch.number, view.name, first_line(error))
        except BaseException as error:
            if not isinstance(error, StoreError) or error.condition != "DATA_AWAY":
                del self._loading[view.log]
                raise
            if not self._has_failed(view.log, epoch.number):
                log.warning("epoch %d of %s waits for the object store: %s", epoch.number, view.name, error.message)
        if not is_there:
            self._failed[view.log] = epoch.number, self._context.clock.monotonic() + LOAD_AGAIN_S
        if is_there and epoch.number < settled and self._counts(view.log, epoch.number):
            for region in regions:
                if region.query is not None and view.log in region.logs.views:
                    region.note_epochs({**self.epochs(region.region), view.log: epoch.number})
            publish(self._context.session, view, epoch.number)
            self._held[view.log] = epoch.number
        del self._loading[view.log]

    def _load(self, view: PlannedView, epoch: Epoch) -> bool:
        folder = self._logs[view.log].results_if_there(epoch)
        if folder is None:
            return False
        session = self._context.session
        session.sparkContext.setJobGroup(self._group, f"view {view.name}", interruptOnCancel=True)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", RELEASE_POOL)
        rows = read_folders(session, [folder], view.schema)
        with files_found(folder):  # it runs a job
            load_epoch(session, view, epoch.number, rows, self._keys[view.log])
        return True

    def stop(self, until_s: float = math.inf) -> None:
        """Load no more, and free the memory. A load is cancelled, so that no job runs when the session stops.

        Args: until_s: the monotonic time until which it may wait.
        """
        if self._loader is None:
            return
        self._loader.shutdown(wait=False, cancel_futures=True)
        # One that has not begun is cancelled: it never ends for `wait_for`.
        loads = [each.done for each in self._loading.values() if not each.done.cancelled()]
        try:
            if wait_for(loads, timeout=0).not_done:
                cancel_jobs(self._context.session, self._group)
                wait_for(loads, timeout=left_s(_STOP_S, until_s))
            for view in self._views.values():
                forget(self._context.session, view)
        except (*SPARK_ERRORS, *JVM_ERRORS) as error:  # the JVM may have died
            log.debug("views were not freed: %s", first_line(error))
