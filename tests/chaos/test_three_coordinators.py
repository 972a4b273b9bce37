"""Three coordinators with a lease in PostgreSQL: the next owner is killed while it takes over. The third one follows.

A soak: it costs two starts of Spark beside each other. `tests/unit/home/test_lease_schedules.py` plays random schedules
of three processes without Spark.
"""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.counting import assert_exactly_once
from tests.chaos.harness import LIGHT, Load
from tests.chaos.test_two_coordinators import LEASE_S, START_S, pair
from tests.postgres import Postgres
from tests.support import PATIENCE, wait_until


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: set FALKIRK_STRIKES")
def test_the_next_owner_is_killed_while_it_takes_over(broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    with ExitStack() as stack:
        trio = stack.enter_context(pair(broker, home, tag, postgres.url()))
        load = stack.enter_context(Load(broker.bootstrap, trio.run.events, rate=LIGHT))
        second, third = trio.other, trio._make("third")
        third.start()
        stack.callback(lambda: third.runs() and third.kill())
        wait_until(lambda: "waiting: " in third.output(), 60, third.output)
        trio.await_results_behind_a_commit()
        trio.one.kill()
        wait_until(lambda: trio.lease().generation == 2, LEASE_S + 10, second.output)
        pid = trio.lease().pid
        taking, last = (second, third) if pid in {p.pid for p in second.processes()} else (third, second)
        assert pid in {p.pid for p in taking.processes()}
        taking.kill()  # it owns the home, and Spark is starting
        wait_until(lambda: trio.lease().generation == 3, (LEASE_S + 10) * PATIENCE, last.output)
        trio.other, trio.run = last, replace(trio.run, application=last)
        before = trio._drain()
        wait_until(lambda: trio.results() > before, START_S * PATIENCE, lambda: f"{last.output()}\n{last.log()}")
        load.__exit__()
        assert_exactly_once(trio.run, load.sent)
