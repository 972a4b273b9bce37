"""Views in memory: the epochs that live regions look up, in the JVM of a session, or in those of its executors."""

import logging
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from falkirk.plan.region import Region
from falkirk.spark_setup.spark import writes_elsewhere
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.live.lookups import PlannedView, lookups_of
from falkirk.theory.ids import EpochNumber, LogId

log = logging.getLogger("falkirk")

#: The number of an epoch without rows, for a standby.
_NOTHING = EpochNumber(-1)


def keys_of(regions: Sequence[Region]) -> dict[LogId, list[list[int]]]:
    """Return for each view the places of the columns of each key with which it is looked up."""
    found: dict[LogId, list[list[int]]] = {}
    for region in regions:
        for view, on in lookups_of(region.steps()):
            key, known = view.key(on), found.setdefault(view.log, [])
            if key not in known:
                known.append(key)
    return found


def hold_nothing(regions: Sequence[Region], session: SparkSession) -> None:
    """Give all views an epoch without rows, in a JVM that has no home: that of a standby."""
    keys = keys_of(regions)
    for view in {view.log: view for region in regions for view in region.views}.values():
        load_epoch(session, view, _NOTHING, empty(session, view.schema), keys[view.log])
        publish(session, view, _NOTHING)


def load_epoch(
    session: SparkSession, view: PlannedView, epoch: EpochNumber, rows: DataFrame, keys: list[list[int]]
) -> None:  # fmt: skip
    """Read an epoch into the memory. No record reads it before `publish`. Args: keys: as of `keys_of`."""
    count = _java(session).load(view.handle, epoch, rows._jdf, keys)
    log.debug("epoch %d of %s: %d rows in memory", epoch, view.name, count)


def publish(session: SparkSession, view: PlannedView, epoch: EpochNumber) -> None:
    """Let records that come read an epoch that is loaded."""
    _java(session).publish(view.handle, epoch)


def forget(session: SparkSession, view: PlannedView) -> None:
    """Free the memory of a view."""
    _java(session).forget(view.handle)


def _java(session: SparkSession) -> Any:
    java: Any = session._jvm.org.falkirk  # type: ignore[union-attr]
    return java.ViewSender if writes_elsewhere(session) else java.Views
