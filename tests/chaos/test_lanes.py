"""A JVM that nobody can reach resumes after its successor has started: readers of a fenced region see nothing of it.

All processes stand still (SIGSTOP). A copy of the home takes over, on another machine as it seems. Then the JVM alone
resumes. Other tests kill processes and the broker while a transaction is open.
"""

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from falkirk.check import read_topic
from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker
from tests.chaos.harness import APPS, START_S, Application, Counting, Load, assert_exactly_once, counting
from tests.support import suspend, wait_until

FILE = APPS / "lanes.py"
_REFUSED = ("ProducerFencedException", "InvalidProducerEpochException")


def _visible(run: Counting) -> list[str]:
    """Return the results that a reader of committed records sees."""
    rows = (json.loads(r.value or b"") for r in read_topic({"bootstrap.servers": run.bootstrap}, run.counts))
    return [f"{row['word']} {row['version']}" for row in rows]


def _repeated(run: Counting) -> int:
    return sum(count - 1 for count in Counter(_visible(run)).values())


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
        ({"FENCED": "yes"}, {"FENCED": "yes", "IDS": "other-"}),
    ],
    ids=["fenced", "spark", "off"],
)
def test_a_jvm_that_nobody_can_reach(
    broker: Broker, home: Path, tag: str, first: dict[str, str], second: dict[str, str]
) -> None:
    copy = home.with_name("copy")
    with counting(broker, home, tag, file=FILE, **first) as run, Load(broker.bootstrap, run.events) as load:
        run.application.wait_committed(1)
        load.rate = 0.5  # so that no transaction is open: the case in which the broker has nothing to abort
        run.application.wait(lambda: len(_visible(run)) >= load.sent > 200, 120, "all results")
        with _standing_still(run) as zombie:
            load.rate = 200.0
            shutil.copytree(home, copy)
            (copy / "processes.json").unlink()
            env = {"EVENTS": run.events, "COUNTS": run.counts, "MACHINE": "another", **second}
            with Application(FILE, broker.bootstrap, copy, env) as successor:
                successor.wait_committed(2)
                known = len(_visible(run))
                zombie.resume()
                if second == {"FENCED": "yes"}:
                    log = home / "host.log"
                    wait_until(lambda: any(e in log.read_text(errors="replace") for e in _REFUSED), 60, "its error")
                else:
                    wait_until(lambda: _repeated(run) > 0, 60, "late records")
                wait_until(lambda: len(_visible(run)) > known + 1_000, START_S, "more results")
                load.rate = 0.5
                successor.wait(lambda: len(set(_visible(run))) >= load.sent, 180, "all results of the successor")
                print(f"{first} {second}: repeated {_repeated(run)} of {len(_visible(run))}")
                assert (_repeated(run) == 0) == (second == {"FENCED": "yes"})


def test_kill_9_of_everything(broker: Broker, home: Path, tag: str) -> None:
    """A reader of committed records sees each result once, also of transactions that were open (always, here)."""
    with counting(broker, home, tag, file=FILE, FENCED="yes", COMMIT_MS="300") as run:
        run.application.wait_committed(0)  # its lanes are open, and nothing was sent
        run.application.kill_everything()
        with Load(broker.bootstrap, run.events) as load:
            for _ in range(2):
                run.application.wait_committed(1)
                known = len(_visible(run))
                run.application.wait(lambda known=known: len(_visible(run)) > known + 200, 120, "results")
                run.application.kill_everything()
            run.application.wait_committed(1)
        _assert_once(run, load.sent)


def test_the_broker_dies_in_a_transaction(own_broker: Broker, home: Path, tag: str) -> None:
    current = own_broker
    with counting(own_broker, home, tag, file=FILE, FENCED="yes", COMMIT_MS="500") as run:
        with Load(own_broker.bootstrap, run.events) as load:
            for _ in range(2):
                run.application.wait_next_commit()
                known = len(_visible(run))
                run.application.wait(lambda known=known: len(_visible(run)) > known + 200, 120, "results")
                process = current.process()
                assert process is not None
                process.kill()
                process.wait(30)
                current = local_broker.start(Path(own_broker.folder))
            run.application.wait_next_commit()
        _assert_once(run, load.sent)


def _assert_once(run: Counting, sent: int) -> None:
    run.application.wait(lambda: len(set(_visible(run))) >= sent, 180, f"{sent} results")
    assert_exactly_once(run, sent)
    assert _repeated(run) == 0
