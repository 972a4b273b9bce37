"""The broker dies, or hangs and resumes: the application waits, and nothing is lost, repeated or out of order.

The application has a plain and a fenced output. The transactions of the fenced one are so long that one is always open;
a reader of committed records sees each result once. tests/cluster/test_fenced.py has a JVM that nobody can reach.
"""

import json
import time
from collections import Counter
from pathlib import Path

import psutil

from falkirk.check import read_topic
from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker
from tests.chaos.harness import APPS, LIGHT, Counting, Load, assert_exactly_once, await_results_behind, counting
from tests.support import suspend, wait_until

FILE, COUNTED = APPS / "lanes.py", ("counts", "fenced")
#: A checkpoint may come between a look at the results and the kill. The kill is then repeated, so often at most.
KILLS_MAX = 4


def visible(run: Counting, name: str = "counts") -> list[str]:
    """Return the results of a count that a reader of committed records sees."""
    rows = (json.loads(r.value or b"") for r in read_topic({"bootstrap.servers": run.bootstrap}, run.topic(name)))
    return [f"{row['word']} {row['version']}" for row in rows]


def repeated(run: Counting, name: str = "counts") -> int:
    """Return how many results such a reader sees again."""
    return sum(count - 1 for count in Counter(visible(run, name)).values())


def _process(broker: Broker) -> psutil.Process:
    process = broker.process()
    assert process is not None
    return process


def test_broker_is_killed_and_then_hangs_while_everything_is_killed(own_broker: Broker, home: Path, tag: str) -> None:
    with counting(own_broker, home, tag, counted=COUNTED, file=FILE, FENCED="fenced", COMMIT_MS="500") as run:
        run.application.wait_committed(0)  # the lanes are open, and nothing was sent
        run.application.kill_everything()
        with Load(own_broker.bootstrap, run.events, rate=LIGHT) as load:
            run.application.wait_committed(0)
            await_results_behind(run)
            process = _process(own_broker)
            process.kill()
            process.wait(30)
            again = local_broker.start(Path(own_broker.folder), java_options=local_broker.SHORT_RUN)
            assert again.bootstrap == own_broker.bootstrap
            suppressed: Counter[str] = Counter()
            for _ in range(KILLS_MAX):
                await_results_behind(run)
                _hang_while_everything_is_killed(again, run)
                run.application.wait_committed(0)
                suppressed.update(run.suppressed())
                if all(suppressed[name] > 0 for name in COUNTED):
                    break
            await_results_behind(run)
        assert_exactly_once(run, load.sent, *COUNTED)
        assert all(suppressed[name] > 0 for name in COUNTED)
        assert repeated(run, "fenced") == 0


def _hang_while_everything_is_killed(broker: Broker, run: Counting) -> None:
    """Requests of the killed writer wait in the hung broker's sockets, and are appended when the broker resumes."""
    process = _process(broker)
    suspend(process)
    try:
        until_s = time.monotonic() + 10
        run.application.kill_everything()
        wait_until(lambda: time.monotonic() > until_s, 30, "the ten seconds of silence")
    finally:
        process.resume()
