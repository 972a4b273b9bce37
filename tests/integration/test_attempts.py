"""A task that has sent records and is run again sends none: neither of a release copy nor of a live region."""

import json
import os
import subprocess
import sys
from pathlib import Path

from falkirk.local.broker import Broker
from tests.integration.attempting import COUNT, FAILS_AT

TIMEOUT_S = 300.0


def test_a_second_attempt_writes_nothing(broker: Broker, tag: str, tmp_path: Path) -> None:
    """Spark runs a task again by itself. It begins where the first attempt began: with the mechanism off it sends the
    same records again."""
    command = [sys.executable, "-m", "tests.integration.attempting", broker.bootstrap, tag, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    on, off = json.loads(done.stdout.splitlines()[-1])
    once, twice = list(range(COUNT)), sorted([*range(COUNT), *range(FAILS_AT)])
    for output in ("copies", "results"):
        assert (sorted(on[output]), sorted(off[output])) == (once, twice), output
    assert [(run["refused"], run["incarnation"]) for run in (on, off)] == [(True, 2), (False, 1)]
