"""Views of the kit: loads the newest epochs of views that live regions look up, in the caller's thread.

As in a real run (`runtime/spark/application/views.py`), an epoch is read once no failure can take it back, and each
region notes it before. The JVM of the test's session has the rows. All runs of a process have one name for a view
there, so a run loads its epochs again if another one has loaded its own meanwhile.
"""

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import SparkSession

from falkirk.plan.plan import Plan
from falkirk.plan.region import Region
from falkirk.runtime.spark.epochs.inputs import read_folders
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.live.views import keys_of, load_epoch, publish
from falkirk.theory.ids import LogId
from falkirk.theory.times import Natural
from falkirk.user_tools.testkit.live import MemoryRegion

#: By the name of a view in the JVM: the run whose epochs are there.
_loaded_by: dict[str, "MemoryViews"] = {}


class MemoryViews:
    """The views of one run of an application, until it crashes. Args: logs: of the epochs of all batches."""

    def __init__(self, plan: Plan, logs: Mapping[LogId, EpochLog], session: SparkSession) -> None:
        self._session, self._keys = session, keys_of(plan.regions)
        self._views = {view.log: view for region in plan.regions for view in region.views}
        self._logs = {log: logs[log] for log in self._views}
        self._held: dict[LogId, Epoch] = {}

    def update(self, settled: Callable[[LogId], Natural], regions: Iterable[MemoryRegion]) -> bool:
        """Read the newest epochs from now on; return whether there was a newer one. Raises: Crash.

        Args: settled: returns the end of the epochs of a view that no failure takes back.
        """
        newer = dict[LogId, Epoch]()
        for log, epochs in self._logs.items():
            end = min(epochs.end(), settled(log))
            newest = next((e for e in reversed(epochs.epochs()) if e.number < end), None)
            if newest is not None and (log not in self._held or self._held[log].number != newest.number):
                newer[log] = newest
        if newer:
            numbers = {log: epoch.number for log, epoch in {**self._held, **newer}.items()}
            for region in regions:
                if views := [view.log for view in region.region.views]:
                    region.note_epochs({log: numbers[log] for log in views if log in numbers})
            for log, epoch in newer.items():
                self._load(log, epoch)
        return bool(newer)

    def are_ready(self, region: Region) -> bool:
        """Return whether there is an epoch of each view of a region. Then its records read these epochs."""
        if not all(view.log in self._held for view in region.views):
            return False
        for view in region.views:
            if _loaded_by.get(view.handle) is not self:
                self._load(view.log, self._held[view.log])
        return True

    def _load(self, log: LogId, epoch: Epoch) -> None:
        view = self._views[log]
        rows = read_folders(self._session, [self._logs[log].results(epoch)], view.schema)
        load_epoch(self._session, view, epoch.number, rows, self._keys[log])
        publish(self._session, view, epoch.number)
        self._held[log], _loaded_by[view.handle] = epoch, self
