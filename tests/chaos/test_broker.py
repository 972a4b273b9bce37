"""The broker dies, or hangs and resumes: the application waits, and nothing is lost, repeated or out of order."""

import time
from pathlib import Path

import psutil

from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker
from tests.chaos.harness import Counting, Load, assert_exactly_once, counting, some_behind_a_commit
from tests.support import suspend, wait_until


def _process(broker: Broker) -> psutil.Process:
    process = broker.process()
    assert process is not None
    return process


def test_broker_is_killed_and_then_hangs_while_everything_is_killed(own_broker: Broker, home: Path, tag: str) -> None:
    with counting(own_broker, home, tag) as run:
        with Load(own_broker.bootstrap, run.events) as load:
            some_behind_a_commit(run)
            process = _process(own_broker)
            process.kill()
            process.wait(30)
            again = local_broker.start(Path(own_broker.folder))
            assert again.bootstrap == own_broker.bootstrap
            some_behind_a_commit(run)
            _hang_while_everything_is_killed(again, run)
            some_behind_a_commit(run)
        assert_exactly_once(run, load.sent)
        assert run.application.suppressed() > 0


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
