"""Files: where the tasks of an iteration read and write the files of its state.

A task writes each file under a name that no other attempt of the task uses (`FileName.attempt`), and reports it
(`reports.py`). The driver adds only reported files to its lists. So neither a failed attempt nor a task of a former
owner changes files that count. All names are paths in the flow's folder, with `/`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from falkirk.steps.differential import runs
from falkirk.steps.differential.ordered import Order, sorted_by_hash

Measured = list[int]
"""The size of a file in bytes and its CRC-32, or nothing if they were not needed yet."""


class TaskFiles(ABC):
    """The files of a flow for a task, which gets this object from the driver."""

    @abstractmethod
    def load(self, name: str) -> pa.Table:
        """Return the rows of a file. Raises: HomeError: `STATE_DAMAGED`. StoreError: `DATA_AWAY`, `DATA_UNUSABLE`."""

    @abstractmethod
    def store(self, name: str, rows: pa.Table) -> Measured:
        """Write rows without sorting them. Raises: OSError. StoreError: as `load`."""

    def write_run(self, name: str, rows: pa.Table, order: Order | None = None) -> Measured:
        """Write a run. Raises: as `store`."""
        return self.store(name, sorted_by_hash(rows, order))


@dataclass(frozen=True)
class FolderFiles(TaskFiles):
    """Files in a folder that both the task and the driver see. Args: folder: its path."""

    folder: str

    def load(self, name: str) -> pa.Table:
        """See TaskFiles."""
        return runs.load_run(Path(self.folder) / name)

    def store(self, name: str, rows: pa.Table) -> Measured:
        """See TaskFiles. The driver measures the files that it saves."""
        runs.store(Path(self.folder) / name, rows)
        return []


class FlowFiles:
    """The files of a flow for its driver, in a folder that all its tasks see. Attributes: folder: its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, name: str) -> None:
        """Take note of a folder into which the tasks of an epoch will write."""

    def of_task(self, names: Iterable[str]) -> TaskFiles:
        """Return the files for a task. Args: names: those that it may read."""
        return FolderFiles(str(self.folder))

    def add(self, written: Mapping[str, Measured]) -> None:
        """Take note of files that tasks have reported."""
