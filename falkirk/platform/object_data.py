"""Object data: the data of a home in an object store, such as S3, or in an HDFS, through pyarrow.

An object store has atomic writes of whole objects, but neither renames nor links, and a listing may lag. So no name is
written twice with different content, except the file that completes a folder. The names of files come from the Spark
job that wrote them (`_written.json`, from the commit protocol in java/) and from manifests. Only the collection of
garbage lists, and what it misses it finds the next time. An HDFS is used in the same way (web_hdfs_files.py).

    <folder>/<any files>
    <folder>/_complete.json    the manifest: the folder is complete. It is written last and deleted first.
"""

import json
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType

from falkirk.errors import HomeError, StoreError
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNKNOWN, DATA_UNUSABLE
from falkirk.platform.copies import copy_parts, require_content, write_copy
from falkirk.platform.data import DataPath, Manifest, is_hidden, rows_in
from falkirk.platform.durable import END_BYTES, damaged
from falkirk.platform.object_clients import TRIES_S, Server, clients_here, clients_of, server_of
from falkirk.platform.stored import parse_json
from falkirk.platform.web_hdfs import HdfsRefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter

#: The file with the manifest of a complete folder, and the file in which a Spark job names the files that it wrote.
COMPLETE_FILE, WRITTEN = "_complete.json", "_written.json"
#: The option of a job that names its files, for ListingFiles.java.
LISTED = "falkirk.listed"
#: The pauses between the tries of a request.
_PAUSES_S = (0.1, 0.5)
#: Texts of pyarrow's errors that a repetition can't mend. It names errors without a name of their own by their status.
_UNUSABLE = re.compile(
    r"AWS Error (?:ACCESS_DENIED|ACCOUNT_PROBLEM|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|INVALID_SIGNATURE|"
    r"MISSING_AUTHENTICATION_TOKEN|NO_SUCH_BUCKET|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|"
    r"\w+ \(HTTP status (?:301|401|403)\))|^Bucket .* not found"
)
T = TypeVar("T")


def data_at(address: str) -> "ObjectData":
    """Return the folder at an address, such as ``s3a://bucket/shop`` or ``hdfs://namenode:8020/shop``.

    The server, the region and the credentials are those of the environment, or of the files of AWS or Hadoop.

    Raises: StoreError: `DATA_AWAY`, `DATA_UNUSABLE`.
    """
    try:
        scheme, _, key = address.partition("://")
        server = server_of(scheme, key.partition("/")[0])
        return _opened(address, server, clients_of(server))
    except OSError as error:
        raise _store_error(address, error) from error
    except ValueError as error:
        raise DATA_UNUSABLE.error(where=address, reason=str(error)) from error


def _sent(address: str, server: Server) -> "ObjectData":
    """Return a path that another process has sent to this one. Raises: StoreError: as `data_at`."""
    try:
        return _opened(address, server, clients_here(server))
    except OSError as error:
        raise _store_error(address, error) from error


def _opened(address: str, server: Server, clients: tuple[FileSystem, FileSystem]) -> "ObjectData":
    scheme, _, key = address.partition("://")
    return ObjectData(clients[0], scheme, key, patient=clients[1], server=server)


def _store_error(where: object, error: Exception) -> StoreError:
    """Return Falkirk's error for one of pyarrow's."""
    reason = " ".join(str(error).split())
    refused = isinstance(error, HdfsRefusedError) or _UNUSABLE.search(reason)
    condition = DATA_UNUSABLE if refused else DATA_AWAY
    return condition.error(where=where, reason=reason[:300].removesuffix("."))


class KnownFiles:
    """The files that this process has written, by key, so that no listing is asked for them."""

    def __init__(self) -> None:
        self._lock, self._sizes, self._whole = threading.Lock(), dict[str, int](), set[str]()

    def add(self, key: str, size: int) -> None:
        """Take note of a file."""
        with self._lock:
            self._sizes[key] = size

    def add_whole(self, folder: str) -> None:
        """Take note that all files of a folder are known, even if there are none."""
        with self._lock:
            self._whole.add(folder)

    def has_whole(self, key: str) -> bool:
        """Return whether all files of a folder, or of a folder around it, are known."""
        parts = key.split("/")
        with self._lock:
            return any("/".join(parts[:end]) in self._whole for end in range(1, len(parts) + 1))

    def below(self, folder: str) -> dict[str, int]:
        """Return the sizes of the files in a folder, by their paths in it."""
        start = f"{folder}/"
        with self._lock:
            return {key.removeprefix(start): size for key, size in self._sizes.items() if key.startswith(start)}

    def forget(self, folder: str) -> None:
        """Forget the files of a folder."""
        start = f"{folder}/"
        with self._lock:
            for key in [key for key in self._sizes if key.startswith(start)]:
                del self._sizes[key]
            self._whole = {key for key in self._whole if not f"{key}/".startswith(start)}


class ObjectData(DataPath):
    """A folder or file in an object store.

    Another process may get it pickled. It asks the same server, with credentials of its own.

    Args: system: pyarrow's. scheme: of Spark's paths. key: the bucket, and the path in it. written: shared by all
        paths of a home in this process. known: the sizes of the files of a folder, according to its manifest. patient:
        pyarrow's, for copies and for reads of Parquet files: it repeats requests itself. None: `system`.
        server: of `system`.
    """

    __slots__ = ("_known", "_patient", "_scheme", "_server", "_system", "_written", "key")

    def __init__(
        self, system: FileSystem, scheme: str, key: str, written: KnownFiles | None = None,
        known: Mapping[str, int] | None = None, *, patient: FileSystem | None = None, server: Server = (None, None),
    ) -> None:  # fmt: skip
        self._server = server
        self._patient = system if patient is None else patient
        self._system, self._scheme, self.key = system, scheme, key.rstrip("/")
        self._written, self._known = written or KnownFiles(), known

    def __truediv__(self, name: str) -> "ObjectData":
        known = None
        if self._known is not None:
            start = f"{name}/"
            known = {n.removeprefix(start): size for n, size in self._known.items() if n.startswith(start)}
        return self._with(f"{self.key}/{name}", known)

    def _with(self, key: str, known: Mapping[str, int] | None) -> "ObjectData":
        return ObjectData(
            self._system, self._scheme, key, self._written, known, patient=self._patient, server=self._server
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _sent, (str(self), self._server)

    def __str__(self) -> str:
        return f"{self._scheme}://{self.key}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectData) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def name(self) -> str:
        """See DataPath."""
        return self.key.rpartition("/")[2]

    def exists(self) -> bool:
        """See DataPath. A folder without its manifest is not complete."""
        # Below the name of an object, servers that keep objects in files can't look and answer 500.
        return any(self._is_object(key) for key in (self.key, f"{self.key}/{COMPLETE_FILE}"))

    def make(self) -> None:
        """See DataPath."""

    def children(self) -> list[DataPath]:
        """See DataPath. Without a manifest this asks for a listing, which may lag."""
        if self._known is not None:
            names = {name.partition("/")[0] for name in self._known}
        else:
            inside = FileSelector(self.key, allow_not_found=True)
            names = {each.base_name for each in self._ask(lambda: self._system.get_file_info(inside))}
        return [self / name for name in sorted(names)]

    def files(self) -> dict[str, int]:
        """See DataPath. Without a manifest: the files that this process has written."""
        return dict(sorted((self._written.below(self.key) if self._known is None else self._known).items()))

    def read_text(self) -> str:
        """See DataPath."""
        return self._ask(self._read).decode()

    def write_text(self, text: str) -> None:
        """See DataPath."""
        content = text.encode()
        self._ask(lambda: self._write(content))
        self._written.add(self.key, len(content))

    def copy_from(self, file: Path) -> tuple[int, int]:
        """See DataPath."""
        with open(file, "rb"):  # a missing one is no fault of the object store
            return self._ask(lambda: self._write_from(file))

    def copy_to(self, file: Path, size: int, checksum: int | None) -> None:
        """See DataPath."""

        def copy(to: BinaryIO) -> tuple[int, int]:
            found = self._ask(lambda: self._read_into(to))
            require_content(found, (size, checksum), self)
            return found

        try:
            write_copy(file, copy, durable=False)
        except FileNotFoundError as error:
            raise damaged("a file is missing.", self, file=str(self)) from error

    def delete(self) -> None:
        """See DataPath."""
        with suppress(FileNotFoundError):
            self._ask(lambda: self._system.delete_file(self.key))

    def sizes(self) -> dict[str, int]:
        """See DataPath."""
        every = FileSelector(self.key, allow_not_found=True, recursive=True)
        found = self._ask(lambda: self._system.get_file_info(every))
        sizes = {each.path.removeprefix(f"{self.key}/"): each.size for each in found if each.type is FileType.File}
        return dict(sorted(sizes.items()))

    def write(self, writer: "DataFrameWriter") -> None:
        """See DataPath."""
        writer.option(LISTED, "true").parquet(str(self))
        self.saved()

    def saved(self) -> None:
        """Take note of the files that a job has written. Raises: HomeError: `STATE_DAMAGED`: it left no list."""
        file = self / WRITTEN
        try:
            sizes = {str(name): int(size) for name, size in parse_json(file.read_text())["files"].items()}
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(f"a Spark job has left no list of its files: {error}.", file) from error
        for name, size in sizes.items():
            self._written.add(f"{self.key}/{name}", size)
        self._written.add_whole(self.key)

    def sync(self) -> Manifest:
        """See DataPath. The objects are durable already. Raises: HomeError: `STATE_DAMAGED`: one is missing."""
        known = {n: s for n, s in self.files().items() if n.rpartition("/")[2] not in (COMPLETE_FILE, WRITTEN)}
        found = {name: [size, self._checksum(name, size)] for name, size in known.items()}
        (self / COMPLETE_FILE).write_text(json.dumps({"files": found}))
        self._written.add_whole(self.key)
        return found

    def check(self, manifest: Manifest, *, contents: bool = True) -> "ObjectData":
        """See DataPath."""
        keys = [f"{self.key}/{name}" for name in manifest]
        infos = self._ask(lambda: self._system.get_file_info(keys)) if keys else []
        for info, (name, (size, checksum)) in zip(infos, manifest.items(), strict=True):
            if info.type is not FileType.File:
                raise self._damaged(name, "a file is missing.")
            if info.size != size:
                raise self._damaged(name, f"a file has {info.size} bytes and was written with {size}.")
            if contents and self._checksum(name, size) != checksum:
                raise self._damaged(name, "a file does not have the content that was written.")
        known = {name: size for name, (size, _) in manifest.items()}
        return self._with(self.key, known)

    def arrow(self) -> tuple[FileSystem, list[str]]:
        """See DataPath."""
        return self._patient, [f"{self.key}/{name}" for name in self._rows()]

    def count_rows(self) -> int:
        """See DataPath."""
        _, files = self.arrow()
        return self._ask(lambda: rows_in(self._system, files))

    def rows(self) -> list[str]:
        """See DataPath: files, so that Spark asks for no listing."""
        return [f"{self}/{name}" for name in self._rows()]

    def remove(self) -> None:
        """See DataPath. The manifest goes first, so that a reader finds a complete folder or none."""
        known = {*self.files(), *self._manifest()} - {COMPLETE_FILE}
        (self / COMPLETE_FILE).delete()
        for name in sorted(known - set(self.listed())):  # a listing that lags does not show them
            (self / name).delete()
        try:
            self._ask(lambda: self._system.delete_dir(self.key))
        except FileNotFoundError:
            pass
        except StoreError:
            self._remove_each()
        self._written.forget(self.key)

    def _remove_each(self) -> None:
        """Remove the files, and then the folders, from the innermost one.

        pyarrow asks for all of them at once. A server that keeps objects in folders refuses a folder with files, and
        then the others stay. Raises: as the other requests.
        """
        every = FileSelector(self.key, allow_not_found=True, recursive=True)
        found = self._ask(lambda: self._system.get_file_info(every))
        for each in sorted(found, key=lambda each: (each.type is FileType.File, each.path.count("/")), reverse=True):
            remove = self._system.delete_file if each.type is FileType.File else self._system.delete_dir
            with suppress(FileNotFoundError):
                self._ask(partial(remove, each.path))
        # For what it has deleted, pyarrow leaves empty objects with the names of folders. Without a file in this
        # folder, it does not find that of the folder itself.
        (self / "_removed").write_text("")
        self._ask(lambda: self._system.delete_dir(self.key))

    def _is_object(self, key: str) -> bool:
        return bool(self._ask(lambda: self._system.get_file_info(key)).type is FileType.File)

    def _rows(self) -> list[str]:
        if self._known is None and not self._written.has_whole(self.key):
            raise DATA_UNKNOWN.error(where=self)
        return [name for name in self.files() if name.endswith(".parquet") and not is_hidden(name)]

    def _manifest(self) -> list[str]:
        try:
            return [str(name) for name in parse_json((self / COMPLETE_FILE).read_text())["files"]]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return []

    def _checksum(self, name: str, size: int) -> int:
        try:
            return self._ask(lambda: (self / name)._read_ends(size))
        except FileNotFoundError as error:
            raise self._damaged(name, "a file is missing.") from error

    def _damaged(self, name: str, text: str) -> HomeError:
        return damaged(text, f"{self}/{name}", file=f"{self}/{name}")

    def _read(self) -> bytes:
        with self._system.open_input_file(self.key) as file:
            return bytes(file.read())

    def _read_ends(self, size: int) -> int:
        """Return the checksum of the first and last bytes of a file."""
        with self._system.open_input_file(self.key) as file:
            checksum = zlib.crc32(file.read_at(min(size, END_BYTES), 0))
            if size > END_BYTES:
                start = max(END_BYTES, size - END_BYTES)
                checksum = zlib.crc32(file.read_at(size - start, start), checksum)
            return checksum

    def _write_from(self, file: Path) -> tuple[int, int]:
        with open(file, "rb") as source, self._patient.open_output_stream(self.key) as to:
            return copy_parts(source, to.write)

    def _read_into(self, file: BinaryIO) -> tuple[int, int]:
        file.seek(0)
        file.truncate()
        with self._patient.open_input_stream(self.key) as source:
            return copy_parts(source, file.write)

    def _write(self, content: bytes) -> None:
        with self._system.open_output_stream(self.key) as file:
            file.write(content)

    def _ask(self, request: Callable[[], T]) -> T:
        """Return the answer of the object store. Every request may be repeated, within `TRIES_S`.

        Raises: FileNotFoundError. StoreError: `DATA_AWAY`; `DATA_UNUSABLE`, at once.
        """
        until_s = time.monotonic() + TRIES_S
        for pause_s in (*_PAUSES_S, None):
            try:
                return request()
            except FileNotFoundError:
                raise
            except (OSError, pa.ArrowException) as error:
                found = _store_error(self, error)
                if pause_s is None or found.condition != "DATA_AWAY" or time.monotonic() + pause_s > until_s:
                    raise found from error
            time.sleep(pause_s)
        raise AssertionError("the last try returns or raises")
