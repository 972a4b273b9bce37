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

from falkirk.local.broker import Broker
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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"FENCED": "yes"}, {"FENCED": "yes"}),
        ({"FENCED": "no"}, {"FENCED": "no"}),
        pytest.param({"FENCED": "yes"}, {"FENCED": "yes", "IDS": "other-"}, marks=pytest.mark.soak),
    ],
    ids=["fenced", "not fenced", "other ids"],
)
def test_a_jvm_that_nobody_can_reach(
    broker: Broker, home: Path, tag: str, first: dict[str, str], second: dict[str, str]
) -> None:
    copy, is_fenced = home.with_name("copy"), second == {"FENCED": "yes"}
    with counting(broker, home, tag, file=LANES, **first) as run, Load(broker.bootstrap, run.events) as load:
        run.application.wait_committed(1)
        load.rate = 0.5  # so that no transaction is open: the case in which the broker has nothing to abort
        run.application.wait(lambda: len(visible(run)) >= load.sent > 200, 120, "all results")
        with _standing_still(run) as unreachable:
            load.rate = 200.0
            shutil.copytree(home, copy)
            (copy / "processes.json").unlink()
            env = {"EVENTS": run.events, "COUNTS": run.counts, "MACHINE": "another", **second}
            with Application(LANES, broker.bootstrap, copy, env) as successor:
                successor.wait_committed(2)
                known = len(visible(run))
                unreachable.resume()
                if is_fenced:
                    log = home / "host.log"
                    wait_until(lambda: any(e in log.read_text(errors="replace") for e in _REFUSED), 60, "its error")
                else:
                    wait_until(lambda: repeated(run) > 0, 60, "late records")
                wait_until(lambda: len(visible(run)) > known + 1_000, START_S, "more results")
                load.rate = 0.5
                successor.wait(lambda: len(set(visible(run))) >= load.sent, 180, "all results of the successor")
                print(f"{first} {second}: repeated {repeated(run)} of {len(visible(run))}")
                assert (repeated(run) == 0) == is_fenced
