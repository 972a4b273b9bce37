"""A Spark cluster on this machine: a standalone master and two workers, each on a separate host."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
import pytest

from falkirk.spark_setup import archive
from falkirk.spark_setup.java import find_java
from tests.cluster.net import Host, Net
from tests.pems import pem_file
from tests.support import wait_until

SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_PORT = 7077
#: Of master and workers: they have little to do.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_UP_S = 240.0
#: The machines of a cluster need these settings: see how-to/security.md.
_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "security.md"
_LINES = re.compile(r"^    (spark\.(?:authenticate|network\.crypto|io\.encryption)\S* +\S+)$", re.MULTILINE)
#: The secret of the documented settings, and that of these tests.
_EXAMPLE, SECRET_TEXT = "THE-SECRET", "of-these-tests-alone-0123456789abcdef"


def spark_class() -> list[str]:
    """Return the command of `spark-class`, with our class archive, and without the JVM that makes up the command."""
    java, classes = find_java(), os.pathsep.join(map(str, archive.archive_class_path("spark")))
    return [java.command, *_JVM, *archive.options("spark", java), "-cp", classes]


def archived() -> str:
    """Return the settings of a user whose executors use the class archive of the driver, on machines with its files."""
    given = re.findall(r"^spark\.executor\.extraJavaOptions (.*)", _settings(), re.MULTILINE)
    options = " ".join((*given, *archive.options("spark", find_java())))
    classes = os.pathsep.join(map(str, archive.archive_class_path("spark")))
    return f"spark.executor.extraJavaOptions {options}\nspark.executor.extraClassPath {classes}\n"


def _settings() -> str:
    return (Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf").read_text()


@dataclass(frozen=True, kw_only=True)
class Protected:
    """Where the parts of a protected cluster are.

    Attributes: secret, pem: files of the driver's user. machines: the folder with the settings of masters and workers,
        which do not use the PEM file.
    """

    secret: Path
    pem: Path
    machines: Path


@contextlib.contextmanager
def protected(folder: Path, more: str = "") -> Iterator[Protected]:
    """Have the machines of clusters know a secret, and a driver that starts in the block only its file.

    Args: folder: is made. more: lines of settings of the driver.
    """
    settings = _settings() + more  # of two equal names, the last one counts
    lines = _LINES.findall(_HOW_TO.read_text())
    assert _EXAMPLE in "".join(lines), "the how-to page has the settings of the machines"
    found = Protected(secret=folder / "cluster.secret", pem=folder / "cluster.pem", machines=folder / "machines")
    for place in (folder, found.machines, folder / "driver"):
        place.mkdir(mode=0o700)
    (found.machines / "spark-defaults.conf").write_text("\n".join(lines).replace(_EXAMPLE, SECRET_TEXT))
    (folder / "driver" / "spark-defaults.conf").write_text(settings)
    found.secret.touch(mode=0o600)
    found.secret.write_text(SECRET_TEXT + "\n")
    pem_file(found.pem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder / "driver"))
        yield found


def assert_secret_is_unseen(processes: Iterable[psutil.Process], *folders: Path) -> None:
    """Check that no argument of a process and no file of a run has the secret, but the two files that must have it."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert SECRET_TEXT not in " ".join(process.cmdline()), process
    kept, read = {"cluster.secret", "spark-defaults.conf"}, 0
    below = (Path(place, name) for folder in folders for place, _, names in os.walk(folder) for name in names)
    for file in (file for file in below if file.name not in kept):
        if file.is_file() and file.suffix != ".jar":
            with contextlib.suppress(FileNotFoundError):  # a running application deletes files
                assert SECRET_TEXT.encode() not in file.read_bytes(), file
                read += 1
    assert read


@dataclass(kw_only=True)
class Worker:
    """A worker, the host that it runs on, and its executors, which are its children."""

    host: Host
    process: "subprocess.Popen[bytes] | None" = None
    #: Executors that outlive it.
    left: list[psutil.Process] = field(default_factory=list)

    def jvm(self) -> psutil.Process:
        """Return the worker's own JVM."""
        assert self.process is not None
        return psutil.Process(self.process.pid)

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of its executors."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.jvm().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        found.append(process)
        self.left = [p for p in {*self.left, *found} if p.is_running()]
        return found


class SparkCluster:
    """A master and two workers. Use `spark_cluster`, which ends them.

    Attributes: address: of the master. workers: by name. folder: of logs.
    """

    def __init__(self, net: Net, folder: Path, machines: Path, *, cores: int) -> None:
        self.folder, self._machines, self._cores = folder, machines, cores
        self.master = net.host("master")
        self.workers = {name: Worker(host=net.host(name)) for name in ("worker1", "worker2")}
        self.address = f"spark://{self.master.address}:{_PORT}"
        folder.mkdir()
        self._master = self._start(self.master, f"{_DEPLOY}.master.Master", "--port", str(_PORT))
        try:
            wait_until(lambda: "I have been elected leader" in self.log("master"), _UP_S, "the master")
            self.start_workers(*self.workers)
        except BaseException:
            self.close()
            raise

    def start_workers(self, *names: str) -> None:
        """Start workers side by side, and wait until the master knows them."""
        due = self.log("master").count("Registering worker") + len(names)
        for name in names:
            worker = self.workers[name]
            # The name of the network card is the same everywhere, so a worker is known by its folder.
            options = ["--cores", str(self._cores), "--memory", "2g", "--work-dir", str(self.folder / name)]
            worker.process = self._start(worker.host, f"{_DEPLOY}.worker.Worker", *options, self.address)
        wait_until(lambda: self.log("master").count("Registering worker") >= due, _UP_S, f"{names} to register")

    def kill_worker(self, name: str) -> None:
        """kill -9 of a worker's JVM; its executors are left to themselves."""
        worker = self.workers[name]
        worker.executors()
        worker.jvm().kill()
        assert worker.process is not None
        worker.process.wait(30)

    def executor_logs(self, name: str) -> str:
        """Return the output of a worker's executors."""
        return "".join(f.read_text(errors="replace") for f in sorted((self.folder / name).glob("*/*/stderr")))

    def log(self, name: str) -> str:
        """Return the output of the master or a worker."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def close(self) -> None:
        """End all of it."""
        for worker in self.workers.values():
            for process in [*worker.executors(), *worker.left]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        for started in (self._master, *(w.process for w in self.workers.values())):
            if started is not None:
                started.kill()
                started.wait()

    def _start(self, host: Host, main: str, *options: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host.address}
        env["SPARK_CONF_DIR"] = str(self._machines)
        command = [*spark_class(), main, "--host", host.address, "--webui-port", "0", *options]
        with open(self.folder / f"{host.name}.log", "ab") as log:
            return subprocess.Popen(
                host.inside(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )


@contextlib.contextmanager
def spark_cluster(net: Net, folder: Path, machines: Path, *, cores: int = 12) -> Iterator[SparkCluster]:
    """Yield a cluster; end it with the block. Args: machines: the folder with the settings of master and workers."""
    cluster = SparkCluster(net, folder, machines, cores=cores)
    try:
        yield cluster
    finally:
        cluster.close()
