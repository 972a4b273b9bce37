"""A real S3-compatible server for tests: S3Proxy in its own process, with its objects in a folder.

It is for tests with FALKIRK_OBJECTS=s3proxy alone: the first one downloads 16 MB into the cache of this machine. Unlike
moto, it can be suspended and killed, has the answers of another author, and refuses wrong signatures.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from falkirk.platform.free_ports import free_ports
from falkirk.spark_setup.cache import cache_home, filled
from falkirk.spark_setup.jars import retrieve, sha256
from falkirk.spark_setup.java import find_java
from tests.support import suspend, wait_until

_IVY, _SUMS = Path(__file__).with_name("ivy.xml"), Path(__file__).with_name("jars.sha256")
#: Warnings and errors; without this file, logback writes several lines for each request.
_LOGGING = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
_START_S = 60.0


def is_chosen() -> bool:
    """Return whether the environment chooses this server. Raises: AssertionError: it names an unknown one."""
    chosen = os.environ.get("FALKIRK_OBJECTS", "moto")
    assert chosen in ("moto", "s3proxy"), f"FALKIRK_OBJECTS={chosen} is neither moto nor s3proxy"
    return chosen == "s3proxy"


def server_jars(sums: Path = _SUMS, ivy: Path = _IVY) -> list[Path]:
    """Return the class path of a server. A first call downloads it. Raises: AssertionError: a jar differs."""
    known = dict(reversed(line.split(maxsplit=1)) for line in sums.read_text().splitlines())
    text = ivy.read_text() + sums.read_text()

    def fill(building: Path) -> None:
        retrieve(ivy, "server", building)
        require_sums(building, known)
        shutil.rmtree(building / "ivy", ignore_errors=True)

    place = cache_home() / "object-server" / hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = filled(place, fill, waiting="Another process is downloading a server for tests; waiting for it.")
    require_sums(folder, known)
    return [folder / name for name in sorted(known)]


def require_sums(folder: Path, known: dict[str, str]) -> None:
    """Compare the jars of a folder with their SHA-256, by name. Raises: AssertionError: one differs or is missing."""
    bad = [name for name, digest in known.items() if not (folder / name).is_file() or sha256(folder / name) != digest]
    assert not bad, f"{folder}: these jars are missing or differ from {_SUMS.name}: {bad}"


class ObjectServer:
    """A running server with an empty folder, at a free port of this machine.

    Args: key, secret: of its only user. Attributes: port, data: the folder with a folder for each bucket.
    """

    def __init__(self, key: str, secret: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="falkirk-objects-"))
        self.data = self._folder / "data"
        self.data.mkdir()
        (self._folder / "logback.xml").write_text(_LOGGING)
        (self.port,) = free_ports(1)
        self._secret, self._changing = (key, secret), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, secret: str | None = None) -> None:
        """Start the server, at the same port and with the same objects, and wait until it answers.

        Args: secret: a new one of its user.
        """
        self._secret = self._secret[0], secret or self._secret[1]
        properties = {
            "s3proxy.authorization": "aws-v2-or-v4", "s3proxy.identity": self._secret[0],
            "s3proxy.credential": self._secret[1], "s3proxy.endpoint": self.url,
            "jclouds.provider": "filesystem-nio2", "jclouds.identity": "none", "jclouds.credential": "none",
            "jclouds.filesystem.basedir": str(self.data),
        }  # fmt: skip
        settings = self._folder / "s3proxy.conf"
        settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        settings.chmod(0o600)
        command = [
            find_java().command, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlogback.configurationFile={self._folder / 'logback.xml'}",
            "-cp", ":".join(map(str, server_jars())), "org.gaul.s3proxy.Main", "--properties", str(settings),
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # names of objects are names of files
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, _START_S, lambda: f"the server to answer\n{self.log()}")

    def log(self) -> str:
        """Return the end of its output."""
        return (self._folder / "log").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """Kill the server with kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def crash(self) -> None:
        """Kill the server with kill -9 and start it again. Concurrent calls are one crash after the other."""
        with self._changing:
            self.kill()
            self.start()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Kill the server with kill -9, and start it again at the end of the block."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    def outages(self) -> dict[str, Callable[[], AbstractContextManager[None]]]:
        """Return each kind of outage."""
        return {"suspended": self.suspended, "killed": self.down}

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop the server with SIGSTOP until the end of the block. Its sockets stay open and take new connections."""
        assert self._process is not None
        process = psutil.Process(self._process.pid)
        suspend(process)
        try:
            yield
        finally:
            process.resume()

    def close(self) -> None:
        """Kill the server and remove its folder."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server has ended\n{self.log()}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False
