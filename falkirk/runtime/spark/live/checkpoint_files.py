"""Checkpoint files: where the checkpoints of a live region are, and which of them can be restored.

Spark writes a checkpoint into a folder of the driver's machine. With a home on a file system, that folder is the truth
(`LocalCheckpoints`). With a home in an object store, it is a working copy (shared_checkpoints.py), or, on a
cluster, has only Spark's logs (written_checkpoints.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from falkirk.platform.parallel import BackgroundCall
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.kept import KeptCheckpoints, state_files
from falkirk.theory.ids import BatchId, LogId, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS_S = 0.5


class CheckpointFiles(ABC):
    """The checkpoints of a region. A process that runs it and commands use this.

    Attributes: waits_for: why new checkpoints do not count yet; empty: nothing is wrong.
    """

    waits_for: str = ""
    #: The folder on the driver's machine with Spark's logs and, except for `WrittenCheckpoints`, with its states.
    _spark: Path

    @property
    def location(self) -> str:
        """Where Spark's query has its checkpoint, after a restore."""
        return str(self._spark)

    @abstractmethod
    def open(self, session: "SparkSession") -> None:
        """Make the location known to a session, before a query begins there."""

    def state_names(self, batch: BatchId) -> list[str]:
        """Return the paths in the location of the state files that a checkpoint may have."""
        return [str(path.relative_to(self._spark)) for path in state_files(self._spark)]

    @abstractmethod
    def places(self) -> object:
        """Return a value that differs once a checkpoint was deleted or moved. Another process may do that."""

    @abstractmethod
    def refresh(self) -> None:
        """Look again where the checkpoints are, because another process may have moved some."""

    @abstractmethod
    def numbers(self) -> tuple[BatchId, ...]:
        """Return the numbers of all checkpoints, oldest first."""

    @abstractmethod
    def made_at_s(self, batch: BatchId) -> float:
        """Return when a checkpoint was made, in seconds since 1970. Raises: FileNotFoundError: it was deleted."""

    @abstractmethod
    def end_offsets(self, batch: BatchId, topic: LogId) -> Offsets:
        """See `checkpoint.end_offsets`."""

    @abstractmethod
    def damage(self, batch: BatchId) -> str | None:
        """See `checkpoint.damage`."""

    @abstractmethod
    def rewind(self, batch: BatchId) -> None:
        """Make a checkpoint, or -1, the newest. Idempotent."""

    @abstractmethod
    def set_aside(self, batches: Collection[BatchId], *, newest: BatchId, retain: int) -> None:
        """Save the files of those of these checkpoints that Spark is about to delete: see KeptCheckpoints."""

    @abstractmethod
    def keep_only(self, batches: Sequence[BatchId]) -> None:
        """Delete the checkpoints before the last of these that are not among them. Idempotent."""

    @abstractmethod
    def restore(self, batch: BatchId) -> str | None:
        """Make Spark's folder resume from a checkpoint, or from the beginning (-1). No query runs.

        Returns: the damage because of which it can't; None: it can. Raises: StoreError.
        """

    @abstractmethod
    def save(self, last: BatchId) -> BatchId:
        """Return the newest checkpoint that a restore can use, and work towards `last` becoming one. Does not wait.

        Args: last: the last batch that Spark has committed in its folder. Raises: StoreError.
        """

    @abstractmethod
    def finish(self, last: BatchId) -> None:
        """Have `last` become a checkpoint, if that takes some seconds at most. No query runs. Raises nothing."""


def restore_while(files: CheckpointFiles, batch: BatchId, on_progress: Callable[[], None]) -> str | None:
    """Restore a checkpoint, and call `on_progress` meanwhile, as it may take long. Returns, raises: as `restore`."""
    work = BackgroundCall(lambda: files.restore(batch), "falkirk-restore")
    while not work.wait(_PROGRESS_S):
        on_progress()
    return work.result()


class LocalCheckpoints(CheckpointFiles):
    """The checkpoints in Spark's folder, and beside it those that are set aside.

    Args: folder: Spark's. topics: the input of the region.
    """

    def __init__(self, folder: Path, *topics: LogId) -> None:
        self._spark, self._topics = folder, topics
        self._kept = KeptCheckpoints(folder, *topics)

    def places(self) -> object:
        """See CheckpointFiles."""
        return checkpoint.committed_batches(self._spark), frozenset(self._kept.numbers)

    def refresh(self) -> None:
        """See CheckpointFiles."""
        self._kept.refresh()

    def numbers(self) -> tuple[BatchId, ...]:
        """See CheckpointFiles."""
        return tuple(sorted({*checkpoint.committed_batches(self._spark), *self._kept.numbers}))

    def made_at_s(self, batch: BatchId) -> float:
        """See CheckpointFiles."""
        return checkpoint.committed_at_s(self._kept.folder(batch), batch)

    def end_offsets(self, batch: BatchId, topic: LogId) -> Offsets:
        """See CheckpointFiles."""
        return checkpoint.end_offsets(self._kept.folder(batch), batch, topic)

    def damage(self, batch: BatchId) -> str | None:
        """See CheckpointFiles."""
        return checkpoint.damage(self._kept.folder(batch), batch, *self._topics)

    def open(self, session: "SparkSession") -> None:
        """See CheckpointFiles: executors see the folder."""

    def rewind(self, batch: BatchId) -> None:
        """See CheckpointFiles."""
        checkpoint.rewind(self._spark, batch)
        self._kept.restore(batch)

    def set_aside(self, batches: Collection[BatchId], *, newest: BatchId, retain: int) -> None:
        """See CheckpointFiles."""
        self._kept.set_aside(batches, newest=newest, retain=retain)

    def keep_only(self, batches: Sequence[BatchId]) -> None:
        """See CheckpointFiles. Spark's own maintenance deletes state files that no checkpoint names."""
        checkpoint.keep_only(self._spark, batches)
        self._kept.delete({n for n in self._kept.numbers if n < batches[-1] and n not in batches})

    def restore(self, batch: BatchId) -> str | None:
        """See CheckpointFiles: `rewind` did it."""
        return None

    def save(self, last: BatchId) -> BatchId:
        """See CheckpointFiles: Spark's commit is durable."""
        return last

    def finish(self, last: BatchId) -> None:
        """See CheckpointFiles."""
