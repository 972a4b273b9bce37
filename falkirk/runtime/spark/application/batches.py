"""Batches: the batches of one plan with their shared parts: logs of epochs and of files, and the releases to sinks."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from falkirk.errors import FalkirkError
from falkirk.plan.batch import Batch
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.protocol.down import is_comparison_open
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.allowance import DELETING_S, Allowance
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.jobs import Shared
from falkirk.runtime.spark.epochs.region import BatchRegion
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.sinks.epoch_logs import EpochLogs
from falkirk.runtime.spark.sinks.release import EpochReleaser, releaser_of
from falkirk.spark_setup.observing import observing
from falkirk.theory.ids import Offsets


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches of one plan in one session. Args: regions: by name. logs: of their epochs, as a LogsPort."""

    regions: dict[str, BatchRegion]
    logs: EpochLogs
    files: tuple[FileLog, ...]
    releasers: tuple[EpochReleaser, ...]

    def prepare(self) -> None:
        """Check the folders of files before any batch looks at them. Raises: HomeError, LogError."""
        for files in self.files:
            files.require()

    def sweep(self, live: Iterable[LiveRegion], down: Mapping[str, FalkirkError], home: Home) -> None:
        """Once each output was compared with the home, begin to delete the folders of batches that no record names.

        Args: live: the live regions. down: the processors that are down, by name, with their errors. Those that stay
            down compare nothing, and are not waited for, unless the age of the home may be the reason. Those that are
            tried again will compare. home: learns that old data and other files without a record may be deleted, too.
        Raises: HomeError: `SINK_AHEAD`. SparkError: `SESSION_LOST`. LogError, StoreError.
        """
        if not home.may_delete:
            left_out = {name for name, error in down.items() if not is_comparison_open(error)}
            fenced = [each for each in live if each.opening is None and each.region.name not in left_out]
            waits = not all(each.compare() for each in fenced)
            compared = [each.compare() for each in self.releasers]  # ask all of them
            home.may_delete = not waits and all(compared)
        if home.may_delete:
            for region in self.regions.values():
                region.strays.drop_later()

    def stop(self, until_s: float = math.inf) -> None:
        """Stop all releases. Args: until_s: the monotonic time until which this may wait."""
        for releaser in self.releasers:
            releaser.stop(until_s)


def batches_of(
    batches: tuple[Batch, ...],
    context: Context,
    settle: Callable[[str], Offsets],
    on_complete: Callable[[str], None],
    may_work: Callable[[], bool],
) -> Batches:
    """Return the batches of a plan.

    Args: settle: returns where a topic ends, once no record of an earlier release can still arrive there. on_complete:
        called with the name of a batch that has recorded an epoch. may_work: returns whether batches may compute
        epochs now.
    """
    allowance = Allowance(context.clock, DELETING_S)
    logs = {batch.log: epoch_log_of(batch.logs(), context, allowance) for batch in batches}
    folders = {i.log: (i.name, i.folder) for b in batches for i in b.inputs if i.folder is not None}
    files = {log: FileLog(name, folder, context.home.store) for log, (name, folder) in folders.items()}
    releasers = {
        batch.log: releaser_of(
            batch.logs(),
            {s.name: s for s in batch.sinks},
            logs[batch.log],
            context,
            settle,
            batch.schema,
            context.recorder,
        )
        for batch in batches
        if batch.is_held
    }
    shared = Shared(logs=logs, files=files, on_complete=on_complete, may_work=may_work)
    regions = {batch.name: BatchRegion(batch, context, shared, releasers.get(batch.log)) for batch in batches}
    return Batches(
        regions=regions, logs=EpochLogs(logs, releasers, observing(context.session)), files=(*files.values(),),
        releasers=(*releasers.values(),),
    )  # fmt: skip
