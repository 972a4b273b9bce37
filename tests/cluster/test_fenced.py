"""A JVM that nobody can reach resumes after its successor has started: readers of a fenced region see nothing of it.

All processes stand still (SIGSTOP). A copy of the home takes over, on another machine as it seems. Then the JVM alone
resumes.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.counting import LANES, Counting, counting, repeated
from tests.chaos.harness import LIGHT, START_S, Application, Load
from tests.cluster.reading import Reading
from tests.support import suspend_all, wait_until

#: A JVM that stood still for longer than this takes its own executor for lost. Then its query may end, and nothing late
#: comes.
LONG = ("--conf", "spark.network.timeout=600s")
_REFUSED = ("ProducerFencedException", "InvalidProducerEpochException")


@contextlib.contextmanager
def _standing_still(run: Counting) -> Iterator[psutil.Process]:
    """Stop all processes; yield the JVM."""
    jvm, found = run.application.jvm(), run.application.processes()
    suspend_all(found)
    try:
        yield jvm
    finally:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@contextlib.contextmanager
def _seen(run: Counting) -> Iterator[dict[str, Reading[str]]]:
    """Follow what a reader of committed records sees of each count, until the end of the block."""

    def of(value: bytes) -> str:
        row = json.loads(value)
        return f"{row['word']} {row['version']}"

    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(contextlib.closing(Reading(run.bootstrap, run.topic(name), of)))
            for name in run.counted
        }


def _has_repeated(seen: list[str]) -> bool:
    return len(set(seen)) < len(seen)


@pytest.mark.parametrize("ids", ["", pytest.param("other-", marks=pytest.mark.soak)])
def test_a_jvm_that_nobody_can_reach(broker: Broker, home: Path, tag: str, ids: str) -> None:
    """Two regions count the same events, and one of them is fenced. A reader sees late results of the other one, and of
    both if the successor takes other transactional ids than the JVM has."""
    copy, counted = home.with_name("copy"), ("counts", "fenced")
    fenced = {"FENCED": "fenced", "INTERVAL": "3 seconds"}
    with (
        counting(broker, home, tag, *LONG, counted=counted, file=LANES, **fenced) as run,
        Load(broker.bootstrap, run.events, rate=LIGHT) as load,
        _seen(run) as seen,
    ):

        def all_out(*names: str) -> bool:
            return all(len(set(seen[name].all())) >= load.sent for name in names)

        run.application.wait_committed(1)
        run.application.wait(lambda: load.sent > 200, 60, "records")
        load.rate = 0.0  # so that no transaction is open: the case in which the broker has nothing to abort
        run.application.wait(lambda: all_out(*counted), 120, "all results")
        with _standing_still(run) as unreachable:
            load.rate = 2 * LIGHT
            shutil.copytree(home, copy)
            (copy / "processes.json").unlink()
            env = {"EVENTS": run.events, "COUNTS": run.counts, "COUNTED": " ".join(counted), "MACHINE": "another"}
            with Application(LANES, broker.bootstrap, copy, {**env, **fenced, "IDS": ids}) as successor:
                successor.wait_committed(2)
                known = len(seen["counts"].all())
                unreachable.resume()
                log = home / "host.log"
                if not ids:
                    wait_until(lambda: any(e in log.read_text(errors="replace") for e in _REFUSED), 60, "its error")
                late = counted if ids else ("counts",)
                wait_until(lambda: all(_has_repeated(seen[name].all()) for name in late), 60, "late records")
                wait_until(lambda: len(seen["counts"].all()) > known + 500, START_S, "more results")
                load.rate = 0.0  # on a slow machine, a further record would always be on its way
                successor.wait(lambda: all_out(*counted), 180, "all results of the successor")
                for name in counted:
                    print(f"{name} {ids}: repeated {repeated(run, name)} of {len(seen[name].all())}")
                assert bool(repeated(run, "fenced")) == bool(ids)
