"""WebHDFS: asks an HDFS over HTTP, which needs neither a JVM nor Hadoop's native client.

A namenode answers all requests but those for contents. For these it names a datanode, which has or takes the content.
Any of several namenodes may be the active one. Authentication is simple: the name of a user, which nobody verifies.

Each request may be repeated, by this module or by its caller: it can be carried out although no answer arrives.
"""

import http.client
import os
import pwd
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from falkirk.platform.stored import parse_json

_ROOT = "/webhdfs/v1"
#: For so long a datanode that failed is asked only if there is no other one. Namenodes notice a dead one after minutes.
_SHUNNED_S = 60.0
#: If all namenodes fail within this time, the client asks each of them again.
_QUICK_S = 1.0
#: Errors of a namenode with which another one may do better, or the same one later.
_NOT_NOW = ("StandbyException", "RetriableException")
T = TypeVar("T")


class HdfsRefusedError(OSError):
    """The HDFS will refuse each repetition of the request: no right, another kind of server, or no WebHDFS."""


def user_name() -> str:
    """Return the name with which this process asks an HDFS, as Hadoop's clients choose it. Raises: HdfsRefusedError."""
    if name := os.environ.get("HADOOP_USER_NAME"):
        return name
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise HdfsRefusedError("this process has no user name; set HADOOP_USER_NAME") from error


class WebHdfs:
    """A client of one HDFS, for all threads.

    Args: namenodes: their HTTP addresses. answer_s, connect_s: how long one request and one connection may wait.
    """

    def __init__(self, namenodes: Sequence[str], answer_s: float, connect_s: float) -> None:
        self.namenodes, self._answer_s, self._connect_s = tuple(namenodes), answer_s, connect_s
        self._active, self._shunned, self._lock = 0, dict[str, float](), threading.Lock()

    def ask(self, method: str, operation: str, path: str, **parameters: str) -> dict[str, Any]:
        """Return the answer of the active namenode.

        Raises: FileNotFoundError. HdfsRefusedError. OSError: no namenode answers now.
        """
        query = urlencode({"op": operation, "user.name": user_name(), **parameters})
        target = f"{_ROOT}{quote(path)}?{query}"
        failed = list[str]()
        until_s = time.monotonic() + _QUICK_S
        for turn in range(2 * len(self.namenodes)):
            if turn == len(self.namenodes) and time.monotonic() > until_s:
                break
            number = (self._active + turn) % len(self.namenodes)
            try:
                found = self._asked(self.namenodes[number], method, target)
            except (FileNotFoundError, HdfsRefusedError, _OtherError):
                self._active = number
                raise
            except OSError as error:
                failed.append(str(error))
                continue
            self._active = number
            return found
        raise ConnectionError("; ".join(dict.fromkeys(failed)))

    def _asked(self, address: str, method: str, target: str) -> dict[str, Any]:
        def asked(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
            connection.request(method, target, headers={"Content-Length": "0"} if method == "PUT" else {})
            answer = connection.getresponse()
            return answer.status, answer.read()

        with closing(Exchange(address, self._answer_s, self._connect_s)) as exchange:
            return _content_of(*exchange.do(asked))

    def begin(self, method: str, operation: str, path: str, **parameters: str) -> tuple["Exchange", str]:
        """Connect with a datanode that a namenode names for the content of a file; return the target of the request.

        Raises: as `ask`.
        """
        place = urlsplit(self._datanode(method, operation, path, parameters))
        exchange = Exchange(place.netloc, self._answer_s, self._connect_s, self._shun)
        return exchange, f"{place.path}?{place.query}"

    def _shun(self, datanode: str) -> None:
        """Avoid a datanode for a while. Namenodes know one by its IP address, not by its name or its HTTP port."""
        host = datanode.rpartition(":")[0]
        with suppress(OSError):  # the name has no address any more
            host = socket.gethostbyname(host)
        with self._lock:
            self._shunned[host] = time.monotonic() + _SHUNNED_S

    def _datanode(self, method: str, operation: str, path: str, parameters: dict[str, str]) -> str:
        with self._lock:
            now_s = time.monotonic()
            self._shunned = {place: until_s for place, until_s in self._shunned.items() if until_s > now_s}
            avoided = {"excludedatanodes": ",".join(self._shunned)} if self._shunned else {}
        try:
            found = self.ask(method, operation, path, noredirect="true", **parameters, **avoided)
        except _OtherError:
            if not avoided:
                raise
            found = self.ask(method, operation, path, noredirect="true", **parameters)  # there is no other one
        return str(found["Location"])


class Exchange:
    """A connection with a server for one request. An error closes it.

    Args: failed: called with the address if the server does not answer. Raises: OSError: there is no connection.
    """

    def __init__(
        self, address: str, answer_s: float, connect_s: float, failed: Callable[[str], None] = lambda address: None
    ) -> None:
        self._address, self._failed = address, failed
        self._connection = http.client.HTTPConnection(address, timeout=connect_s)
        self._connection.auto_open = 0  # the rest of a content must not begin another request
        self.do(lambda connection: connection.connect())
        self._connection.sock.settimeout(answer_s)

    def do(self, step: Callable[[http.client.HTTPConnection], T]) -> T:
        """Do a step of the request. Raises: as `WebHdfs.ask`."""
        try:
            return step(self._connection)
        except (FileNotFoundError, HdfsRefusedError, _OtherError):  # an answer
            self.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._failed(self._address)
            raise ConnectionError(f"{self._address} does not answer: {error or repr(error)}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _OtherError(OSError):
    """A namenode or datanode has answered with an error that may pass."""


def accepted(answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """Return the answer of a datanode. Raises: as `WebHdfs.ask`, if it is an error."""
    if answer.status not in (200, 201):
        _content_of(answer.status, answer.read())
    return answer


def _content_of(status: int, content: bytes) -> dict[str, Any]:
    """Return the content of an answer. Raises: as `WebHdfs.ask`."""
    if status == 401:
        raise HdfsRefusedError("the HDFS asks for Kerberos, which Falkirk does not support")
    try:
        found = parse_json(content) if content or status != 200 else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        if status >= 500:
            raise ConnectionError(f"status {status}")
        raise HdfsRefusedError(f"no namenode answers at this HTTP port (status {status}): {content[:80]!r}")
    error = found.get("RemoteException")
    if error is None:
        if status >= 400:
            raise _OtherError(f"status {status}")
        return found
    kind, said = str(error.get("exception")), str(error.get("message")).partition("\n")[0]
    text = f"{kind}: {said}"
    if kind == "FileNotFoundException":
        raise FileNotFoundError(text)
    if kind in _NOT_NOW:
        raise ConnectionError(text)
    if kind in ("AccessControlException", "SecurityException", "UnsupportedOperationException"):
        raise HdfsRefusedError(text)
    raise _OtherError(text)
