"""A machine with a working copy of checkpoints whose home is in an object store."""

from pathlib import Path

from falkirk.platform.data import DataPath
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live.shared_checkpoints import SharedCheckpoints
from falkirk.theory.ids import BatchId, LogId
from tests.support import wait_until
from tests.unit.live.test_checkpoint_files import write, write_batch


class Machine:
    """A machine with its own working copy. All machines of a test have one object store and one database.

    Args: data: the folder of the region there; None: a local one in its place.
    """

    def __init__(self, place: Path, store: Store, name: str, data: DataPath | None = None) -> None:
        self.spark, self.data = place / name, LocalData(place / "objects") if data is None else data
        self.may_delete = True
        self.files = SharedCheckpoints(
            "r", self.spark, self.data, store, LogId("pages"), may_delete=lambda: self.may_delete
        )

    def begin(self, batch: int = -1) -> str | None:
        """Start from a checkpoint."""
        wrong = self.files.restore(BatchId(batch))
        if batch < 0:
            write(self.spark, 0)
            (self.spark / "metadata").write_text('{"id":"q"}')
        return wrong

    def commit(self, batch: int, *, saved: bool = True) -> None:
        """Commit a batch as Spark does, and wait until it counts."""
        write_batch(self.spark, batch)
        if saved:
            self.save(batch)

    def save(self, batch: int) -> None:
        wait_until(lambda: self.files.save(BatchId(batch)) >= batch, 20, f"checkpoint {batch}")

    def content(self) -> dict[str, str]:
        """Return the working copy."""
        files = (p for p in self.spark.rglob("*") if p.is_file() and not p.name.startswith("."))
        return {str(p.relative_to(self.spark)): p.read_text() for p in sorted(files)}
