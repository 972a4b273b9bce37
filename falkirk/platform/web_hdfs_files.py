"""Files of WebHDFS: an HDFS as one of pyarrow's file systems, so that `ObjectData` uses it like an object store.

In an object store, a file is there once its upload is complete. HDFS shows a file that is being written, and keeps the
beginning of one whose writer has died. So a file is written under another name, and then renamed, which HDFS does at
once or not at all. The other name is in the same folder: the collections of garbage delete it there with all other
files that nothing names. Readers of rows skip it, as its name begins with a dot.

HDFS renames also replace a file. A writer that fails deletes its file, so that a rename which is under way then finds
nothing: it can't replace what the next try has written.
"""

import io
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from falkirk.platform.web_hdfs import Exchange, HdfsRefusedError, WebHdfs, accepted

#: How the name of a file that is being written begins.
PART_PREFIX = "._"


def hdfs_system(client: WebHdfs, tries: int = 1) -> PyFileSystem:
    """Return an HDFS for pyarrow. Paths begin with its authority. Args: tries: of each part of a read."""
    return PyFileSystem(_Handler(client, tries))


def _path(key: str) -> str:
    """Return the path in the HDFS."""
    return "/" + key.partition("/")[2].rstrip("/")


class _Handler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The operations that `ObjectData` and pyarrow's readers use. They raise as `WebHdfs.ask`."""

    def __init__(self, client: WebHdfs, tries: int) -> None:
        self._client, self._tries = client, tries

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and self._client.namenodes == other._client.namenodes

    def __hash__(self) -> int:
        return hash(self._client.namenodes)

    def get_type_name(self) -> str:
        """See pyarrow."""
        return "webhdfs"

    def normalize_path(self, path: str) -> str:
        """See pyarrow."""
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[FileInfo]:
        """See pyarrow."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        try:
            return _as_info(path, self._client.ask("GET", "GETFILESTATUS", _path(path))["FileStatus"])
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """See pyarrow."""
        found, folders = list[FileInfo](), [selector.base_dir]
        while folders:
            folder = folders.pop()
            try:
                answer = self._client.ask("GET", "LISTSTATUS", _path(folder))
            except FileNotFoundError:
                if folder == selector.base_dir and not selector.allow_not_found:
                    raise
                continue  # deleted meanwhile
            each = [s for s in answer["FileStatuses"]["FileStatus"] if s["pathSuffix"]]
            infos = [_as_info(f"{folder}/{status['pathSuffix']}", status) for status in each]
            found += infos
            if selector.recursive:
                folders += [info.path for info in infos if info.type is FileType.Directory]
        return found

    def delete_file(self, path: str) -> None:
        """See pyarrow."""
        if not self._client.ask("DELETE", "DELETE", _path(path))["boolean"]:
            raise FileNotFoundError(path)

    def delete_dir(self, path: str) -> None:
        """See pyarrow."""
        if not self._client.ask("DELETE", "DELETE", _path(path), recursive="true")["boolean"]:
            raise FileNotFoundError(path)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """See pyarrow."""
        return pa.PythonFile(self._reader(path, ahead=True), mode="r")

    def open_input_file(self, path: str) -> pa.PythonFile:
        """See pyarrow."""
        return pa.PythonFile(self._reader(path, ahead=False), mode="r")

    def _reader(self, path: str, *, ahead: bool) -> "_Reader":
        info = self._info(path)
        if info.type is not FileType.File:
            raise FileNotFoundError(path)
        return _Reader(self._client, _path(path), info.size, tries=self._tries, ahead=ahead)

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        """See pyarrow."""
        return pa.PythonFile(_Writer(self._client, _path(path)), mode="w")

    def _unused(self, *_: Any) -> Any:
        raise io.UnsupportedOperation("Falkirk does not use this operation of pyarrow's file systems")

    open_append_stream = create_dir = move = copy_file = delete_dir_contents = delete_root_dir_contents = _unused


def _as_info(path: str, status: dict[str, Any]) -> FileInfo:
    if status["type"] == "DIRECTORY":
        return FileInfo(path, FileType.Directory)
    return FileInfo(path, FileType.File, size=int(status["length"]))


class _Reader(io.RawIOBase):
    """A file that is read. Args: tries: of each part. ahead: whether the parts follow each other to the end."""

    def __init__(self, client: WebHdfs, path: str, size: int, *, tries: int, ahead: bool) -> None:
        self._client, self._path, self._size, self._tries, self._ahead = client, path, size, tries, ahead
        self._at = 0
        self._exchange: Exchange | None = None
        self._answer: HTTPResponse | None = None

    def readable(self) -> bool:
        """See io."""
        return True

    def seekable(self) -> bool:
        """See io."""
        return True

    def tell(self) -> int:
        """See io."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io."""
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at != self._at:
            self._stop()
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes: all that were asked for, or those to the end. Raises: as `WebHdfs.ask`."""
        left = max(0, self._size - self._at)
        size = left if size is None or size < 0 else min(size, left)
        for left_tries in range(self._tries - 1, -1, -1):
            try:
                content = self._part(size) if size else b""
            except (FileNotFoundError, HdfsRefusedError):
                raise
            except OSError:
                self._stop()
                if not left_tries:
                    raise
                continue
            self._at += size
            return content
        raise AssertionError("the last try returns or raises")

    def _part(self, size: int) -> bytes:
        if self._answer is None:
            length = self._size - self._at if self._ahead else size
            part = {"offset": str(self._at), "length": str(length)}
            self._exchange, target = self._client.begin("GET", "OPEN", self._path, **part)
            self._answer = self._exchange.do(lambda connection: _requested(connection, target))
        answer, exchange = self._answer, self._exchange
        assert exchange is not None, "an answer comes from one"
        content = exchange.do(lambda connection: _whole(answer, size))
        if not self._ahead:
            self._stop()
        return content

    def _stop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        if self._exchange is not None:
            self._exchange.close()

    def close(self) -> None:
        """See io."""
        self._stop()
        super().close()


class _Writer:
    """A file that is written. It is there once `close` returns, and never a part of it.

    It is none of Python's files, which close themselves when nobody uses them any more.
    """

    def __init__(self, client: WebHdfs, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._client, self._path = client, path
        self._unfinished = f"{folder}/{PART_PREFIX}{name}.{secrets.token_hex(8)}"
        self._exchange: Exchange | None = None
        self._is_over, self.closed = False, False

    def flush(self) -> None:
        """See io."""

    def write(self, content: Any) -> int:
        """Send some bytes. Raises: as `WebHdfs.ask`."""
        part = bytes(content)
        if part:
            self._do(lambda: self._send(b"%x\r\n%s\r\n" % (len(part), part)))
        return len(part)

    def close(self) -> None:
        """Complete the file. After an error of `write`, there is none. Raises: as `WebHdfs.ask`."""
        if not self._is_over:
            self._do(self._complete)
            self._is_over = True
        self.closed = True

    def _do(self, step: Callable[[], None]) -> None:
        if self._is_over:
            raise ConnectionError(f"{self._path}: an earlier part was not written")
        try:
            step()
        except BaseException:
            self._is_over = True
            with suppress(OSError):
                self._client.ask("DELETE", "DELETE", self._unfinished)
            raise

    def _send(self, chunk: bytes) -> None:
        if self._exchange is None:
            self._exchange, target = self._client.begin("PUT", "CREATE", self._unfinished, overwrite="true")
            self._exchange.do(lambda connection: _begun(connection, target))
        self._exchange.do(lambda connection: _sent(connection, chunk))

    def _complete(self) -> None:
        self._send(b"0\r\n\r\n")
        assert self._exchange is not None
        self._exchange.do(lambda connection: accepted(connection.getresponse()).read())
        self._exchange.close()
        try:
            self._client.ask("PUT", "RENAME", self._unfinished, destination=self._path, renameoptions="OVERWRITE")
        except FileNotFoundError as error:  # an earlier try of this request may have renamed it, so nobody knows
            raise ConnectionError(f"{self._path}: no answer tells whether it was renamed") from error


def _requested(connection: HTTPConnection, target: str) -> HTTPResponse:
    connection.request("GET", target)
    return accepted(connection.getresponse())


def _whole(answer: HTTPResponse, size: int) -> bytes:
    content = answer.read(size)
    if len(content) != size:
        raise ConnectionError(f"the answer ended after {len(content)} of {size} bytes")
    return content


def _begun(connection: HTTPConnection, target: str) -> None:
    connection.putrequest("PUT", target)
    connection.putheader("Content-Type", "application/octet-stream")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()


def _sent(connection: HTTPConnection, chunk: bytes) -> None:
    try:
        connection.send(chunk)
    except ConnectionError:
        accepted(connection.getresponse())  # a refusal before the end of the content tells more
        raise
