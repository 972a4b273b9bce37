"""A real HDFS for tests: a namenode and a datanode in a process of their own, with their files in a folder.

It is for tests with FALKIRK_HDFS=1 alone: the first one downloads 45 MB into the cache of this machine.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from falkirk.platform.free_ports import free_ports
from falkirk.spark_setup.compiler import compile_java
from falkirk.spark_setup.java import find_java
from tests.object_server import server_jars

_HERE = Path(__file__).parent
#: The folder in which everyone may write; all other folders are those of the superuser.
FOLDER = "shop"
_LOGGING = """log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1} %m%n
log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=INFO,audit
log4j.additivity.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=false
log4j.appender.audit=org.apache.log4j.FileAppender
log4j.appender.audit.file=AUDIT
log4j.appender.audit.layout=org.apache.log4j.PatternLayout
log4j.appender.audit.layout.ConversionPattern=%m%n
"""


def is_chosen() -> bool:
    """Return whether the environment chooses this server."""
    return os.environ.get("FALKIRK_HDFS") == "1"


class HdfsServer:
    """A running HDFS with the folder `FOLDER`, at free ports of this machine.

    Attributes: ports: of the namenode (RPC, HTTP) and of the datanode (data, HTTP, IPC). audit: the file in which the
        namenode notes each operation that it has done.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="falkirk-hdfs-"))
        self.audit = self._folder / "audit"
        self.ports = free_ports(5)
        self._doing = threading.Lock()
        try:
            self._classes = _classes(self._folder / "classes", self.audit)
            self.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    @property
    def address(self) -> str:
        """The address for Hadoop's clients."""
        return f"hdfs://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        """Start the server with the same ports and files, and wait until it does requests."""
        command = [
            find_java().command, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", ":".join([str(self._classes), *map(str, _jars())]),
            "HdfsServer", str(self._folder), *map(str, self.ports),
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, "HADOOP_USER_NAME": "superuser"}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True, bufsize=1,
            )  # fmt: skip
        self._await_ok()

    def log(self) -> str:
        """Return the end of its output."""
        return (self._folder / "log").read_text(errors="replace")[-4000:]

    def do(self, command: str) -> None:
        """Do a command of HdfsServer.java, such as ``datanode stop``."""
        with self._doing:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{command}\n")
            self._await_ok()

    def _await_ok(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip() == "ok", f"{line}\n{self.log()}"

    def outages(self) -> dict[str, Callable[[], AbstractContextManager[None]]]:
        """Return each kind of outage."""
        stopped = {part: partial(self.without, part) for part in ("namenode", "datanode")}
        return {**stopped, "safe mode": self.read_only}

    @contextmanager
    def without(self, part: str) -> Iterator[None]:
        """Stop a part in the block, and then start it again. Args: part: ``namenode`` or ``datanode``."""
        self.do(f"{part} stop")
        try:
            yield
        finally:
            self.do(f"{part} start")

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let the namenode be in safe mode in the block."""
        self.do("safemode enter")
        try:
            yield
        finally:
            self.do("safemode leave")

    def kill(self) -> None:
        """Kill both parts with kill -9."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def crash(self) -> None:
        """Kill both parts with kill -9, and start them again."""
        with self._doing:
            self.kill()
            self.start()

    def close(self) -> None:
        """Kill the server and remove its folder."""
        self.kill()
        shutil.rmtree(self._folder)


def _jars() -> list[Path]:
    return server_jars(_HERE / "jars.sha256", _HERE / "ivy.xml")


def _classes(folder: Path, audit: Path) -> Path:
    """Return the folder with the class of the server, and with what Hadoop's web servers want on the class path."""
    for name in ("hdfs", "datanode"):
        (folder / "webapps" / name / "WEB-INF").mkdir(parents=True)
        (folder / "webapps" / name / "WEB-INF" / "web.xml").write_text("<web-app/>")
    (folder / "webapps" / "static").mkdir()
    (folder / "log4j.properties").write_text(_LOGGING.replace("AUDIT", str(audit)))
    compile_java(_HERE / "java", folder, class_path=_jars())
    return folder
