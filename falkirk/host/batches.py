"""Batch host: runs the batches of an application in one Spark session, and reports epochs that fail."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

from py4j.protocol import Py4JNetworkError

from falkirk.errors import FalkirkError
from falkirk.errors.conditions.host import EPOCH_KEEPS_FAILING, SESSION_LOST_GONE
from falkirk.errors.spark import first_line
from falkirk.local.spark import observing
from falkirk.plan.batch import Batch
from falkirk.runtime.context import Context
from falkirk.runtime.epochs.files import FileLog
from falkirk.runtime.epochs.log import Epoch, EpochLog
from falkirk.runtime.epochs.region import BatchRegion
from falkirk.runtime.sinks.release import EpochLogs, EpochReleaser, releaser_of
from falkirk.runtime.status import RegionStatus
from falkirk.theory.ids import EpochNumber, LogId, Offsets


class BatchHost:
    """The batches of one plan in one session.

    Args: settle: returns where a topic ends, once no record of an earlier release can still arrive there.
    """

    def __init__(self, batches: tuple[Batch, ...], context: Context, settle: Callable[[str], Offsets]) -> None:
        self._context = context
        self.regions = {batch.name: BatchRegion(batch, context) for batch in batches}
        logs: Mapping[LogId, EpochLog] = {r.batch.log: r.epochs for r in self.regions.values()}
        folders = {i.log: (i.name, i.folder) for b in batches for i in b.inputs if i.folder is not None}
        self._files = {log: FileLog(name, folder, context.home.store) for log, (name, folder) in folders.items()}
        for region in self.regions.values():
            region.reads_from(logs, self._files)
        self._releasers: dict[LogId, EpochReleaser] = {
            r.batch.log: releaser_of(
                r.logs, {s.name: s for s in r.batch.sinks}, r.epochs, context, settle, r.batch.schema
            )
            for r in self.regions.values()
            if r.batch.is_held
        }
        for region in self.regions.values():
            if (releaser := self._releasers.get(region.batch.log)) is not None:
                region.jobs.behind, region.jobs.direct.releaser = releaser.behind, releaser
        self.logs = EpochLogs(logs, self._releasers, observing(context.session))
        self._status = {name: RegionStatus(name=name) for name in self.regions}
        #: The newest complete epoch and the number of published epochs when dead letters were last counted.
        self._counted: dict[str, tuple[EpochNumber, EpochNumber]] = {}
        #: The newest saved epoch of each batch.
        self._saved: dict[str, EpochNumber] = {}

    def prepare(self) -> None:
        """Check the inputs of the batches before any batch starts. Raises: HomeError, LogError."""
        for files in self._files.values():
            files.require()
        for region in self.regions.values():
            region.prepare()

    def failures(self) -> Iterator[tuple[str, FalkirkError]]:
        """Stop the batches whose runs have ended by themselves; yield each one with its error."""
        for name, region in self.regions.items():
            if (error := region.failure()) is not None:
                region.end()
                yield name, self._fatal(region, error)

    def look(self) -> tuple[str, ...]:
        """Check each batch once; return those that can resume from a later epoch than at the last call."""
        further = []
        for name, region in self.regions.items():
            status = self._status[name]
            epochs = region.epochs.epochs()
            complete = [e for e in epochs if e.is_complete]
            releaser = self._releasers.get(region.batch.log)
            if complete:
                status.last_commit = complete[-1].number
                # Dead letters are published with the epoch's results, which is later.
                so_far = status.last_commit, EpochNumber(0) if releaser is None else releaser.released()
                if self._counted.get(name) != so_far:
                    self._counted[name], status.dead_letters = so_far, self._dead_letters(region)
            before, now = self._saved.get(name), _last_saved(epochs)
            if before is not None and now > before:
                further.append(name)
            self._saved[name] = now
            made_at_s = complete[-1].made_at_s if complete else None
            status.checkpoint_age_s = None if made_at_s is None else time.time() - made_at_s
            status.detail = "; ".join(d for d in (region.jobs.detail, "" if releaser is None else releaser.detail) if d)
            status.state = "running" if region.health().runs else "starting"
        return tuple(further)

    def _dead_letters(self, region: BatchRegion) -> int:
        topic = region.batch.dead_letter_topic
        return 0 if topic is None else sum(self._context.topics.end_positions(topic).values())

    def _fatal(self, region: BatchRegion, error: Exception) -> FalkirkError:
        if isinstance(error, FalkirkError):
            return error
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return SESSION_LOST_GONE.error()
        told = EPOCH_KEEPS_FAILING.error(where=region.batch.where, region=region.batch.name, reason=first_line(error))
        told.__cause__ = error
        return told

    def wait(self, reason: str) -> None:
        """Show in the status of each batch the reason why all batches wait."""
        for status in self._status.values():
            status.detail = reason

    def status(self) -> tuple[RegionStatus, ...]:
        """Return the status of each batch, upstream first."""
        return tuple(self._status.values())

    def stop(self) -> None:
        """Stop all batches and all releases."""
        for region in self.regions.values():
            region.leave_off()  # all at once: callers wait only for a limited time
        for releaser in self._releasers.values():
            releaser.stop()
        for name, region in self.regions.items():
            region.end()
            self._status[name].state = "stopped"


def _last_saved(epochs: Sequence[Epoch]) -> EpochNumber:
    """Return the newest saved epoch before the first one that is not complete, or -1."""
    return max((e.number for e in takewhile(lambda e: e.is_complete, epochs) if e.saved), default=EpochNumber(-1))
