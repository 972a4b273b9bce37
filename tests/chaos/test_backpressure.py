"""Backpressure of an application in its own processes: none is declared dead, and memory stays within limits.

This is a soak. `integration/epochs/test_slow_sinks.py` runs the same application in the session of the tests.
"""

import os
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Application
from tests.integration.slowed import FILE, environment, make_input_wait
from tests.postgres import Postgres

#: A JVM with Spark's default heap of 1 GiB stays below the first limit, a host below the second.
JVM_BYTES_MAX, HOST_BYTES_MAX = 2.5 * 2**30, 0.5 * 2**30


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_a_slow_sink_and_a_slow_step_make_input_wait(broker: Broker, home: Path, tag: str, postgres: Postgres) -> None:
    application = Application(FILE, broker.bootstrap, home, environment(tag, postgres, home))
    pids, memory = list[tuple[int, int]](), list[tuple[int, int]]()

    def look() -> None:
        jvm, host = application.jvm(), application.host()
        pids.append((jvm.pid, host.pid))
        memory.append((jvm.memory_info().rss, host.memory_info().rss))

    make_input_wait(application, broker.bootstrap, tag, postgres, look)
    assert len(set(pids)) == 1, "a process was declared dead"
    assert memory[1][0] < JVM_BYTES_MAX
    assert memory[1][1] < HOST_BYTES_MAX
