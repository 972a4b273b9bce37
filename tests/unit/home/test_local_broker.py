"""The local broker as a process: a stop waits for its end."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import psutil

from falkirk.platform import processes
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker


def test_a_broker_that_its_starter_does_not_wait_for_is_stopped(tmp_path: Path) -> None:
    """Regression: as a zombie it counted as running. After two timeouts, the stop failed."""
    program = "import subprocess, sys; print(subprocess.Popen(['sleep', '100']).pid, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        running = Broker(folder=str(tmp_path), pid=pid, began=processes.began(pid), port=1, controller_port=2)
        (tmp_path / "broker.json").write_text(json.dumps(asdict(running)))
        assert local_broker.stop(tmp_path, timeout_s=5)
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        assert not local_broker.stop(tmp_path)
        starter.kill()
