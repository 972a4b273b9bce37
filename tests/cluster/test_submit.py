"""spark-submit of an application, on a cluster within the driver and on a standalone master: killed, and resumed.

A region beside the judged one fails on a value. No coordinator counts its failures, so a file does, beyond the kill.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from confluent_kafka import Producer

from falkirk.checker import Guarantee
from falkirk.platform.free_ports import free_ports
from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.module import application_jars
from tests.chaos.harness import LIGHT, Load, judge_counts, topics_of
from tests.cluster.reading import Reading
from tests.cluster.spark import assert_secret_is_unseen, protected, spark_class
from tests.support import wait_until

SPARK = Path(pyspark.__file__).parent
APP = Path(__file__).parent / "apps" / "failing.py"
PATIENCE_S = 180.0
#: The number of failures that end a region, and the number at which everything is killed.
FAILURES, FAILED = 4, 2


class Submitted:
    """An application that is run by spark-submit, with its files below a folder."""

    def __init__(self, master: str, folder: Path, broker: Broker, tag: str, secure: str) -> None:
        self.events, self.counts, self.bootstrap = f"events-{tag}", f"counts-{tag}", broker.bootstrap
        self.refused = f"refused-{tag}"
        for topic in (self.events, self.counts, self.refused):
            # With several partitions, the others would run on, and count as progress.
            topics_of(broker.bootstrap).create(topic, 1, {})
        self._folder, self._home = folder, folder / "home"
        jars = ",".join(str(jar) for jar in application_jars())
        # As operations.md has it: nothing but the master and the jars.
        self._command = [
            str(SPARK / "bin" / "spark-submit"),
            "--master",
            master,
            "--jars",
            jars,
            str(APP),
        ]
        names = {"EVENTS": self.events, "COUNTS": self.counts, "KAFKA": self.bootstrap, "HOME_FOLDER": str(self._home)}
        names |= {
            "REFUSED": self.refused,
            "REGIONS": "counts refused",
            "INTERVAL": "3 seconds",
            "FAILURES": str(FAILURES),
            "SECURE": secure,
        }
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._env = {**os.environ, **names, **python, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.getcwd()}
        self._process: subprocess.Popen[bytes] | None = None
        self._readings = {topic: Reading(broker.bootstrap, topic, bytes) for topic in (self.counts, self.refused)}

    def submit(self) -> None:
        """Submit it."""
        with open(self._folder / "submit.log", "ab") as log:
            self._process = subprocess.Popen(self._command, env=self._env, stdout=log, stderr=log, cwd=self._folder)

    def released(self, topic: str | None = None) -> int:
        """Return the number of published results. Args: topic: by default that of the counts."""
        return len(self._readings[topic or self.counts].all())

    def committed(self, region: str = "counts") -> int:
        """Return the last committed batch."""
        return last_committed_batch(self._home / "regions" / region)

    def silence_s(self) -> float:
        """Return how long an executor lives at most without its driver, as the home has recorded it."""
        return float(json.loads((self._home / "executors.json").read_text())["silence_s"])

    def send_what_is_refused(self) -> None:
        """Send the value on which one of the regions fails."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.events, json.dumps({"word": "w0", "n": -1}).encode(), key="w0")
        assert producer.flush(60) == 0

    def failed(self) -> int:
        """Return how often that region has failed, as the home has recorded it."""
        with contextlib.suppress(FileNotFoundError):
            counts = json.loads((self._home / "failures.json").read_text())
            return int(counts.get("refused", {}).get("failures", 0))
        return 0

    def starts(self) -> int:
        """Return how often that region was started."""
        with contextlib.closing(sqlite3.connect(self._home / "decisions.db")) as store:
            (count,) = store.execute("SELECT count(*) FROM incarnations WHERE region = 'refused'").fetchone()
        return int(count)

    def wait(self, condition: object, what: str) -> None:
        """Wait while it runs."""

        def met() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            assert callable(condition)
            return bool(condition())

        wait_until(met, PATIENCE_S, f"{what}\n{self.log()}")

    def close(self) -> None:
        """End it, and the test's connections."""
        self.kill()
        for reading in self._readings.values():
            reading.close()

    def kill(self) -> None:
        """kill -9 of the driver, its Python and their child processes."""
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
                if APP.name in " ".join(process.cmdline()) and "java" not in process.name():
                    process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def log(self) -> str:
        """Return the end of its output."""
        return (self._folder / "submit.log").read_text(errors="replace")[-3000:]


@contextlib.contextmanager
def standalone(folder: Path, machines: Path) -> Iterator[str]:
    """Run a standalone master with one worker on this machine, and yield the master's address.

    Args: machines: the folder with their settings.
    """
    (port,) = free_ports(1)
    folder.mkdir()
    deploy = "org.apache.spark.deploy"
    address, quiet = f"spark://127.0.0.1:{port}", ["--webui-port", "0", "--host", "127.0.0.1"]
    commands = [
        [f"{deploy}.master.Master", "--port", str(port), *quiet],
        [f"{deploy}.worker.Worker", "--cores", "12", "--memory", "2g", "--work-dir", str(folder), *quiet, address],
    ]
    env = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
    env["SPARK_CONF_DIR"] = str(machines)
    with open(folder / "standalone.log", "ab") as log:
        started = [
            subprocess.Popen([*spark_class(), *command], stdout=log, stderr=log, env=env) for command in commands
        ]
    try:
        wait_until(lambda: "Registering worker" in (folder / "standalone.log").read_text(), PATIENCE_S, "the worker")
        yield address
    finally:
        for process in started:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # an executor may be ending
                    child.kill()
            process.kill()
            process.wait()


#: A driver that starts with the secret in the file of its first argument.
DRIVER = "import sys, falkirk as fk; fk.spark_session('stranger', master=sys.argv[1], secure=sys.argv[2], brief=True)"


def assert_refused_without_the_secret(address: str, folder: Path) -> None:
    """Start a driver with another secret. Spark would try for a minute."""
    other = folder / "other.secret"
    other.touch(mode=0o600)
    other.write_text("of-somebody-else-0123456789abcdef\n")
    stranger = subprocess.run(
        [sys.executable, "-c", DRIVER, address, str(other)], capture_output=True, text=True, timeout=PATIENCE_S,
        check=False, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert stranger.returncode == 1
    assert "refuses the connection of this driver" in stranger.stderr, stranger.stderr
    assert other.read_text().strip() not in stranger.stderr


@pytest.mark.parametrize(
    ("master", "killed"),
    [pytest.param("local-cluster[2,8,1024]", False, marks=pytest.mark.soak), ("standalone", True)],
)
def test_submitted_application(broker: Broker, tmp_path: Path, tag: str, master: str, *, killed: bool) -> None:
    """It runs, and resumes after a kill if the master outlives it."""
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(protected(tmp_path / "conf"))
        address, secure = master, "generated"  # all of a local cluster is here
        if master == "standalone":
            secure = str(known.secret)
            address = stack.enter_context(standalone(tmp_path / "workers", known.machines))
            assert_refused_without_the_secret(address, tmp_path)
        run = Submitted(address, tmp_path, broker, tag, secure)
        stack.callback(run.close)
        run.submit()
        with Load(broker.bootstrap, run.events, rate=LIGHT) as load:
            run.wait(lambda: run.committed() >= 1, "a checkpoint")
        run.wait(lambda: run.released(run.refused) >= load.sent, "all results of the other region")
        # A checkpoint right before the value. With others before it, a start could get further, and would not count.
        until = run.committed("refused") + 1
        run.wait(lambda: run.committed("refused") > until, "checkpoints behind them")
        run.send_what_is_refused()
        with Load(broker.bootstrap, run.events, rate=LIGHT, seed=2) as more:
            before = run.released()
            run.wait(lambda: run.released() > before + 100, "results since")
            run.wait(lambda: run.failed() >= FAILED, "failures of the other region")
            if killed:
                assert run.silence_s() < 30, "the settings of a cluster hold under spark-submit, too"
                run.kill()
                assert FAILED <= run.failed() < FAILURES
                killed_at = run.committed()
                run.submit()
                run.wait(lambda: run.committed() > killed_at + 1, "a checkpoint after the kill")
        sent = load.sent + 1 + more.sent
        run.wait(lambda: run.released() >= sent, "all results")
        behind = run.committed()
        run.wait(lambda: run.committed() > behind, "a checkpoint behind all results")
        run.wait(lambda: run.failed() >= FAILURES, "the other region to be down")
        assert_secret_is_unseen(psutil.process_iter(), tmp_path)
        assert run.terminate() == 1, run.log()
    # One failure may have been recorded when the next try had begun. Without the file there would be two more.
    assert run.starts() <= FAILURES + 1
    assert run.failed() == 0, "the next start tries everything again"
    printed = (tmp_path / "submit.log").read_text(errors="replace")
    assert f"'refused' failed {FAILURES} times" in printed
    assert "authentication enabled" in printed
    assert "docs/how-to/security.md" not in printed, "a start warns of open ports"
    verdict = judge_counts(run.bootstrap, run.events, run.counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert verdict.counts.observed_outputs == sent
