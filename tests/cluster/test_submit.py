"""spark-submit of an application, on a cluster within the driver and on a standalone master: killed, and gone on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from falkirk.check import Guarantee, read_topic
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.broker import Broker
from falkirk.local.module import application_jars
from falkirk.runtime.live.checkpoint import last_committed_batch
from tests.chaos.harness import APPS, Load, judge_counts
from tests.support import wait_until

SPARK = Path(pyspark.__file__).parent
PATIENCE_S = 180.0
#: As operations.md has it for a cluster, in the file that master, workers, driver and executors read.
_SECRET = """
spark.authenticate true
spark.authenticate.secret of-these-tests-alone
spark.network.crypto.enabled true
spark.io.encryption.enabled true
"""


class Submitted:
    """An application that is run by spark-submit, with its files below a folder."""

    def __init__(self, master: str, folder: Path, broker: Broker, tag: str) -> None:
        self.events, self.counts, self.bootstrap = f"events-{tag}", f"counts-{tag}", broker.bootstrap
        self.topics = Topics(Connection.of(broker.bootstrap))
        for topic in (self.events, self.counts):
            self.topics.create(topic, 2, {})
        self._folder, self._home = folder, folder / "home"
        jars = ",".join(str(jar) for jar in application_jars())
        # As operations.md has it: nothing but the master and the jars.
        self._command = [
            str(SPARK / "bin" / "spark-submit"),
            "--master",
            master,
            "--jars",
            jars,
            str(APPS / "counts.py"),
        ]
        names = {"EVENTS": self.events, "COUNTS": self.counts, "KAFKA": self.bootstrap, "HOME_FOLDER": str(self._home)}
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._env = {**os.environ, **names, **python, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.getcwd()}
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self) -> None:
        """Submit it."""
        with open(self._folder / "submit.log", "ab") as log:
            self._process = subprocess.Popen(self._command, env=self._env, stdout=log, stderr=log, cwd=self._folder)

    def released(self) -> int:
        """Return how many results are out."""
        return sum(1 for _ in read_topic({"bootstrap.servers": self.bootstrap}, self.counts))

    def committed(self) -> int:
        """Return the last committed batch."""
        return last_committed_batch(self._home / "regions" / "counts")

    def silence_s(self) -> float:
        """Return how long an executor lives at most without its driver, as the home has recorded it."""
        return float(json.loads((self._home / "executors.json").read_text())["silence_s"])

    def wait(self, condition: object, what: str) -> None:
        """Wait while it runs."""

        def met() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            assert callable(condition)
            return bool(condition())

        wait_until(met, PATIENCE_S, f"{what}\n{self.log()}")

    def kill(self) -> None:
        """kill -9 of the driver, its Python and what they started."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            found = [root, *root.children(recursive=True)]
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=30)
        self._process.wait(30)

    def terminate(self) -> int:
        """Ask its Python to stop, as a supervisor does; return spark-submit's exit code."""
        assert self._process is not None
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # helpers of Spark's come and go
                if "counts.py" in " ".join(process.cmdline()) and "java" not in process.name():
                    process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def log(self) -> str:
        """Return the end of what it printed."""
        return (self._folder / "submit.log").read_text(errors="replace")[-3000:]


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a standalone master with one worker on this machine, and yield the master's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    deploy = "org.apache.spark.deploy"
    address, quiet = f"spark://127.0.0.1:{port}", ["--webui-port", "0", "--host", "127.0.0.1"]
    commands = [
        [f"{deploy}.master.Master", "--port", str(port), *quiet],
        [f"{deploy}.worker.Worker", "--cores", "12", "--memory", "2g", "--work-dir", str(folder), *quiet, address],
    ]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with open(folder / "standalone.log", "ab") as log:
        started = [
            subprocess.Popen([str(SPARK / "bin" / "spark-class"), *command], stdout=log, stderr=log, env=env)
            for command in commands
        ]
    try:
        wait_until(lambda: "Registering worker" in (folder / "standalone.log").read_text(), 60, "the worker")
        yield address
    finally:
        for process in started:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all of Spark authenticate and encrypt its connections."""
    settings = (Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf").read_text()
    folder = tmp_path / "conf"
    folder.mkdir(mode=0o700)
    (folder / "spark-defaults.conf").write_text(settings + _SECRET)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))


@pytest.mark.usefixtures("encrypted")
@pytest.mark.parametrize(
    ("master", "killed"),
    [pytest.param("local-cluster[2,8,1024]", False, marks=pytest.mark.soak), ("standalone", True)],
)
def test_submitted_application(broker: Broker, tmp_path: Path, tag: str, master: str, *, killed: bool) -> None:
    """It runs, and on a master that outlives it goes on after a kill."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(standalone(tmp_path / "workers")) if master == "standalone" else master
        run = Submitted(address, tmp_path, broker, tag)
        stack.callback(run.kill)
        run.submit()
        with Load(broker.bootstrap, run.events, rate=100) as load:
            run.wait(lambda: run.committed() >= 1, "a checkpoint")
            before = run.released()
            run.wait(lambda: run.released() > before + 100, "results since")
            if killed:
                assert run.silence_s() < 30, "the settings of a cluster hold under spark-submit, too"
                run.kill()
                killed_at = run.committed()
                run.submit()
                run.wait(lambda: run.committed() > killed_at + 1, "a checkpoint after the kill")
        run.wait(lambda: run.released() >= load.sent, "all results")
        behind = run.committed()
        run.wait(lambda: run.committed() > behind, "a checkpoint behind all results")
        assert run.terminate() == 0, run.log()
    printed = (tmp_path / "submit.log").read_text(errors="replace")
    assert "authentication enabled" in printed
    assert "docs/operations.md, Ports" not in printed, "a start warns of open ports"
    verdict = judge_counts(run.bootstrap, run.events, run.counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert verdict.counts.observed_outputs == load.sent
