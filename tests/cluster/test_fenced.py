"""A JVM that nobody can reach resumes after its successor has started: readers of a fenced region see nothing of it.

All processes stand still (SIGSTOP). A copy of the home takes over, on another machine as it seems. Then the JVM alone
resumes.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from falkirk.environment.broker import Broker
from tests.chaos.counting import LANES, Counting, counting, repeated, visible
from tests.chaos.harness import START_S, Application, Load
from tests.support import suspend, wait_until

_REFUSED = ("ProducerFencedException", "InvalidProducerEpochException")


@contextlib.contextmanager
def _standing_still(run: Counting) -> Iterator[psutil.Process]:
    """Stop all processes; yield the JVM."""
    jvm, found = run.application.jvm(), run.application.processes()
    for process in found:
        suspend(process)
    try:
        yield jvm
    finally:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.parametrize("ids", ["", pytest.param("other-", marks=pytest.mark.soak)])
def test_a_jvm_that_nobody_can_reach(broker: Broker, home: Path, tag: str, ids: str) -> None:
    """Two regions count the same events, and one of them is fenced. A reader sees late results of the other one, and of
    both if the successor takes other transactional ids than the JVM has."""
    copy, counted = home.with_name("copy"), ("counts", "fenced")
    fenced = {"FENCED": "fenced", "INTERVAL": "3 seconds"}
    with (
        counting(broker, home, tag, counted=counted, file=LANES, **fenced) as run,
        Load(broker.bootstrap, run.events) as load,
    ):
        run.application.wait_committed(1)
        load.rate = 0.5  # so that no transaction is open: the case in which the broker has nothing to abort

        def all_out(*names: str) -> bool:
            return all(len(set(visible(run, name))) >= load.sent > 200 for name in names)

        run.application.wait(lambda: all_out(*counted), 120, "all results")
        with _standing_still(run) as unreachable:
            load.rate = 200.0
            shutil.copytree(home, copy)
            (copy / "processes.json").unlink()
            env = {"EVENTS": run.events, "COUNTS": run.counts, "COUNTED": " ".join(counted), "MACHINE": "another"}
            with Application(LANES, broker.bootstrap, copy, {**env, **fenced, "IDS": ids}) as successor:
                successor.wait_committed(2)
                known = len(visible(run))
                unreachable.resume()
                log = home / "host.log"
                if not ids:
                    wait_until(lambda: any(e in log.read_text(errors="replace") for e in _REFUSED), 60, "its error")
                late = counted if ids else ("counts",)
                wait_until(lambda: all(repeated(run, name) for name in late), 60, "late records")
                wait_until(lambda: len(visible(run)) > known + 1_000, START_S, "more results")
                load.rate = 0.5
                successor.wait(lambda: all_out(*counted), 180, "all results of the successor")
                for name in counted:
                    print(f"{name} {ids}: repeated {repeated(run, name)} of {len(visible(run, name))}")
                assert bool(repeated(run, "fenced")) == bool(ids)
