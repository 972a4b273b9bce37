"""A fenced region while everything is killed, and then the broker: a reader of committed records sees each result once.

Transactions are so long that one is always open. tests/cluster/test_fenced.py has a JVM that nobody can reach.
"""

import json
from collections import Counter
from pathlib import Path

from falkirk.check import read_topic
from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker
from tests.chaos.harness import APPS, Counting, Load, assert_exactly_once, counting

FILE = APPS / "lanes.py"


def visible(run: Counting) -> list[str]:
    """Return the results that a reader of committed records sees."""
    rows = (json.loads(r.value or b"") for r in read_topic({"bootstrap.servers": run.bootstrap}, run.counts))
    return [f"{row['word']} {row['version']}" for row in rows]


def repeated(run: Counting) -> int:
    """Return how many results such a reader sees again."""
    return sum(count - 1 for count in Counter(visible(run)).values())


def _more(run: Counting) -> None:
    """Wait for results after a commit."""
    run.application.wait_committed(1)
    known = len(visible(run))
    run.application.wait(lambda: len(visible(run)) > known + 200, 120, "results")


def test_kill_9_of_everything_and_of_the_broker(own_broker: Broker, home: Path, tag: str) -> None:
    with counting(own_broker, home, tag, file=FILE, FENCED="yes", COMMIT_MS="500") as run:
        run.application.wait_committed(0)  # its lanes are open, and nothing was sent
        run.application.kill_everything()
        with Load(own_broker.bootstrap, run.events) as load:
            _more(run)
            run.application.kill_everything()
            _more(run)
            process = own_broker.process()
            assert process is not None
            process.kill()
            process.wait(30)
            local_broker.start(Path(own_broker.folder))
            _more(run)
            run.application.wait_next_commit()
        run.application.wait(lambda: len(set(visible(run))) >= load.sent, 180, f"{load.sent} results")
        assert_exactly_once(run, load.sent)
        assert repeated(run) == 0
        assert run.application.suppressed() > 0
