"""Data: the folders and files with the data of a home, on a local disk, in an object store or an HDFS, behind one port.

The data are what Spark writes and reads: results of epochs and states. Their records (manifests) are in the store of
decisions, whose commit alone makes data count. So a file system needs neither renames nor exact listings: a file is
written once, in a folder that is used once, and a reader takes the names from the manifest.

The coordinator and commands load this module, so it does not load pyarrow, which takes half a second and 30 MB.

All access to data goes through this port; a test refuses `pathlib`, `os` and `shutil` in the modules that use it.
`local_data.py` and `object_data.py` implement it. `tests/contract/test_data_port.py` runs over both.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from falkirk.errors.conditions.platform import DATA_NOT_LOCAL

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrameWriter

HDFS = "hdfs"
"""The scheme of addresses in an HDFS."""

Manifest = Mapping[str, list[int]]
"""For each file, by its path in a folder: its size in bytes, and the CRC-32 of its first and last bytes."""


class DataPath(ABC):
    """A folder or file of data. Values are equal if they name the same place.

    Methods that read or write raise OSError on a local disk. In an object store, they raise FileNotFoundError, or
    StoreError `DATA_AWAY` if the store does not answer, and `DATA_UNUSABLE` if it will always refuse.
    """

    @abstractmethod
    def __truediv__(self, name: str) -> "DataPath":
        """Return the path of something in this folder."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the path as Spark and messages name it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the file, or the complete folder, is there."""

    @abstractmethod
    def make(self) -> None:
        """Make a folder with its parents, so that it outlives a power loss. An object store has no folders."""

    @abstractmethod
    def children(self) -> "list[DataPath]":
        """Return the files and folders in this folder, by name. A missing folder has none."""

    @abstractmethod
    def files(self) -> dict[str, int]:
        """Return the sizes of all files in this folder and its folders, by their paths in it."""

    @abstractmethod
    def read_text(self) -> str:
        """Return the content of a file."""

    @abstractmethod
    def write_text(self, text: str) -> None:
        """Write a file with its folders: after any crash it has its old content or the new one."""

    @abstractmethod
    def copy_from(self, file: Path) -> tuple[int, int]:
        """Write this file with the content of a local one; return the number of bytes written and their CRC-32.

        It is durable then. A file that still grows is copied in part. Raises: FileNotFoundError: there is no local one.
        """

    @abstractmethod
    def copy_to(self, file: Path, size: int, checksum: int | None) -> None:
        """Write a local file with the content of this one: after a crash it has all of it, or is not there.

        Args: size, checksum: as of `copy_from`; None: only the size is compared. Raises: HomeError: `STATE_DAMAGED`:
            this file has other content, or is missing.
        """

    @abstractmethod
    def delete(self) -> None:
        """Delete a file. A missing one is deleted already."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of all files in this folder, by their paths in it, sorted by path.

        In an object store, a listing may lag.
        """

    def listed(self) -> list[str]:
        """Return the paths of `sizes`."""
        return [*self.sizes()]

    @abstractmethod
    def write(self, writer: "DataFrameWriter") -> None:
        """Have Spark write rows into this folder, as Parquet files. Raises: Spark's errors. HomeError."""

    @abstractmethod
    def sync(self) -> Manifest:
        """Make a folder that this process has written outlive a power loss; return the manifest of its files."""

    @abstractmethod
    def check(self, manifest: Manifest, *, contents: bool = True) -> "DataPath":
        """Check that the files of a manifest are unchanged; return this folder with these files.

        Args: contents: check checksums too, not only sizes.
        Raises: HomeError: `STATE_DAMAGED`, with the file.
        """

    @abstractmethod
    def arrow(self) -> "tuple[FileSystem, list[str]]":
        """Return the Parquet files of this folder for pyarrow, without hidden ones. Raises: as `rows`."""

    def count_rows(self) -> int:
        """Return the number of rows of this folder, according to its Parquet files. Raises: as `rows`."""
        return rows_in(*self.arrow())

    @abstractmethod
    def rows(self) -> list[str]:
        """Return the paths from which Spark reads the rows of this folder; none if it has none.

        Raises: InternalError: `DATA_UNKNOWN`: the folder is in an object store, and no `check`, `write` or `sync` of
            this process has named its files. Its rows would be missing without notice.
        """

    @abstractmethod
    def remove(self) -> None:
        """Delete a folder. Its readers find all of it or nothing, where the file system can do that."""


def endpoint_url() -> str | None:
    """Return the address of the object store in the environment; None: it is S3 itself."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def is_hidden(name: str) -> bool:
    """Return whether readers of rows skip a file, by its path in the folder."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/"))


def rows_in(system: "FileSystem", files: Iterable[str]) -> int:
    """Return the number of rows of Parquet files in one of pyarrow's file systems."""
    from pyarrow import parquet

    return sum(int(parquet.read_metadata(file, filesystem=system).num_rows) for file in files)


def local_path(data: DataPath, what: str) -> Path:
    """Return the path of data on a local disk, for code that needs one. Args: what: the code, for the error.

    Raises: InternalError: `DATA_NOT_LOCAL`: they are elsewhere, and the plan should have refused that.
    """
    found = getattr(data, "local", None)
    if not isinstance(found, Path):
        raise DATA_NOT_LOCAL.error(where=data, what=what)
    return found
