"""Local data: the data of a home in a folder of a file system that all its machines see."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO

from falkirk.platform.copies import copy_parts, require_content, write_copy
from falkirk.platform.data import DataPath, Manifest, is_hidden
from falkirk.platform.durable import check_files, damaged, make_folder, sync, write_atomically

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrameWriter

#: How the name of a folder begins that is being deleted.
GONE = ".gone-"
#: The characters of patterns in paths that Spark reads.
_PATTERN = re.compile(r"[*?\[\]{}\\]")


class LocalData(DataPath):
    """A folder or file on a local disk. Attributes: local: its path."""

    __slots__ = ("local",)

    def __init__(self, local: Path) -> None:
        self.local = local

    def __truediv__(self, name: str) -> "LocalData":
        return LocalData(self.local / name)

    def __str__(self) -> str:
        return str(self.local)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalData) and self.local == other.local

    def __hash__(self) -> int:
        return hash(self.local)

    @property
    def name(self) -> str:
        """See DataPath."""
        return self.local.name

    def exists(self) -> bool:
        """See DataPath."""
        return self.local.exists()

    def make(self) -> None:
        """See DataPath."""
        make_folder(self.local)

    def children(self) -> list[DataPath]:
        """See DataPath."""
        return [LocalData(path) for path in sorted(self.local.iterdir())] if self.local.is_dir() else []

    def files(self) -> dict[str, int]:
        """See DataPath."""
        found = {}
        for path in sorted(
            Path(root, name) for root, _, names in os.walk(self.local, onerror=_unless_gone) for name in names
        ):
            with suppress(FileNotFoundError):  # renamed or deleted meanwhile, as a temporary file is
                status = path.stat()
                if S_ISREG(status.st_mode):
                    found[str(path.relative_to(self.local))] = status.st_size
        return found

    def read_text(self) -> str:
        """See DataPath."""
        return self.local.read_text(encoding="utf-8")

    def write_text(self, text: str) -> None:
        """See DataPath."""
        self.local.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.local, text)

    def copy_from(self, file: Path) -> tuple[int, int]:
        """See DataPath."""
        with open(file, "rb") as source:
            return write_copy(self.local, lambda to: copy_parts(source, to.write), durable=True)

    def copy_to(self, file: Path, size: int, checksum: int | None) -> None:
        """See DataPath."""

        def copy(to: BinaryIO) -> tuple[int, int]:
            try:
                with open(self.local, "rb") as source:
                    found = copy_parts(source, to.write)
            except FileNotFoundError as error:
                raise damaged("a file is missing.", self, file=str(self)) from error
            require_content(found, (size, checksum), self)
            return found

        write_copy(file, copy, durable=False)

    def delete(self) -> None:
        """See DataPath."""
        self.local.unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """See DataPath."""
        return self.files()

    def write(self, writer: "DataFrameWriter") -> None:
        """See DataPath."""
        writer.parquet(str(self))

    def sync(self) -> Manifest:
        """See DataPath."""
        return sync(self.local)

    def check(self, manifest: Manifest, *, contents: bool = True) -> "LocalData":
        """See DataPath."""
        check_files(self.local, manifest, contents=contents)
        return self

    def arrow(self) -> "tuple[FileSystem, list[str]]":
        """See DataPath."""
        from pyarrow.fs import LocalFileSystem

        names = (name for name in self.files() if name.endswith(".parquet") and not is_hidden(name))
        return LocalFileSystem(), [str(self.local / name) for name in names]

    def rows(self) -> list[str]:
        """See DataPath. Spark takes some characters for patterns, which the path of a home may have."""
        return [_PATTERN.sub(r"\\\g<0>", str(self.local))]

    def remove(self) -> None:
        """See DataPath."""
        if self.local.is_dir() and not self.name.startswith(GONE):
            gone = self.local.with_name(f"{GONE}{self.name}")
            with suppress(OSError):
                self.local.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        shutil.rmtree(self.local, ignore_errors=True)


def _unless_gone(error: OSError) -> None:
    """Ignore a folder that another thread has deleted, or that is none. Raises: the error, if it is another one."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
