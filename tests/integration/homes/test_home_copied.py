"""Owners that are replaced, with a real broker and real processes, without Spark: coordinator, host and what the host
has started end at once, and say why."""

import shutil
import sys
import threading
from functools import partial
from pathlib import Path

import psutil

from falkirk.declare.load import load_application
from falkirk.errors import FalkirkError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.claim import MARK, Claim
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.runtime.supervision.starting import start_process
from falkirk.spark_setup.broker import Broker
from tests.support import wait_until

APPLICATION = """
import falkirk as fk

app = fk.App("copied", kafka={kafka!r})
app.source("events", fk.Kafka("events", schema="n LONG"))
app.sink("out", "events", fk.Kafka("out"))
"""
#: The host, with a dummy process in place of Spark's.
HOST = """
import pathlib, signal, subprocess, sys
from falkirk.runtime.supervision import process as host, start

def session(*args, **settings):
    child = subprocess.Popen(["sleep", "1000"])
    pathlib.Path(sys.argv[1], "child").write_text(str(child.pid))
    while True:
        signal.pause()

start.spark_session = session
sys.exit(host.main())
"""


def test_a_coordinator_and_its_host_of_which_a_copy_runs_end(broker: Broker, tmp_path: Path) -> None:
    file, first, second = tmp_path / "app.py", tmp_path / "first", tmp_path / "second"
    file.write_text(APPLICATION.format(kafka=broker.bootstrap))
    open_home(first, "copied").close()
    shutil.copytree(first, second)
    command = [sys.executable, "-c", HOST, str(tmp_path)]
    start = partial(start_process, program=command)
    coordinator = Coordinator(load_application(file), RunSettings(file=file, home=first), start=start)
    ended: list[FalkirkError] = []

    def run() -> None:
        try:
            coordinator.run()
        except FalkirkError as error:
            ended.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    child, log = tmp_path / "child", first / "host.log"
    wait_until(lambda: child.exists() and child.read_text(), 60, lambda: f"the host to work\n{log.read_text()}")
    spark = psutil.Process(int(child.read_text()))
    with open_home(second, "copied") as home:
        claim = Claim(Connection.of(broker.bootstrap), home)
        claim.await_former()
        assert not spark.is_running() or spark.status() == psutil.STATUS_ZOMBIE, "nothing begins before it has ended"
        claim.check()
        claim.close()
    running.join(60)
    assert not running.is_alive()
    assert [error.condition for error in ended] == ["HOME_COPIED"]
    assert str(second) in str(ended[0])
    assert (first / MARK).exists()
