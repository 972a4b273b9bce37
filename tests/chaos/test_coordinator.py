"""kill -9 during the coordinator's work, on real Spark: recovery, release, collection.

An interrupted action is finished or started again. Input that a replay needs still exists, and no result is lost,
repeated or contradicted. `integration/live_regions/test_tentative_cut.py` interrupts it at the same places without a
kill. A kill costs a start of Spark, so the kills run with FALKIRK_STRIKES alone.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from falkirk.recovery.decision_store import Store
from falkirk.spark_setup.broker import Broker
from tests.chaos.apps.dying import PLACES
from tests.chaos.harness import APPS, Load
from tests.integration.live import Wire
from tests.integration.tentative import BY_WORD, Hop, expected, released
from tests.support import wait_until

ROOT = Path(__file__).parents[2]
DIES_S = 120.0


@contextmanager
def running(env: dict[str, str], log: Path, place: str, time: int) -> Iterator["subprocess.Popen[bytes]"]:
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(APPS / "dying.py"), place, str(time)],
            env={**os.environ, **env, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(DIES_S)


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_killed_in_the_middle_of_everything(broker: Broker, home: Path, tag: str, tmp_path: Path) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, counts = wire.topic("events"), wire.topic("counts")
    env = {"EVENTS": events, "COUNTS": counts, "KAFKA": broker.bootstrap, "HOME_FOLDER": str(home)}
    log, choice = tmp_path / "log", random.Random(7)

    def text() -> str:
        return log.read_text(errors="replace")[-3000:]

    with Load(broker.bootstrap, events, rate=30.0) as load:
        # The first run creates the home and the topics. They are watched before the coordinator collects any of their
        # data.
        first, *others = PLACES
        with running(env, log, first, 1) as process:
            wait_until(lambda: process.poll() is not None, DIES_S, f"the process to die {first}\n{text()}")
        identity = next(
            t for t in wire.admin.list_topics(timeout=10).topics if t.endswith(f".{BY_WORD}") and _is_of(t, home)
        )
        with Hop(broker.bootstrap, identity).watched() as hop:
            for place in others:
                with running(env, log, place, choice.randint(1, PLACES[place][-1])) as process:
                    wait_until(lambda p=process: p.poll() is not None, DIES_S, f"the process to die {place}\n{text()}")  # type: ignore[misc]
                assert process.returncode == -9, f"{place}: {process.returncode}\n{text()}"
            with running(env, log, "never", 0) as process:
                store = Store(home / "decisions.db")
                sent = load.sent
                wait_until(lambda: wire.count(counts) >= sent, DIES_S, f"{sent} results\n{text()}")
                load.__exit__()
                wait_until(lambda: wire.count(counts) >= load.sent, DIES_S, f"{load.sent} results\n{text()}")
        store.close()
    assert store is not None
    found = released(broker.bootstrap, counts)
    assert sorted(r["n"] for rows in found.values() for r in rows) == list(range(load.sent))
    assert found == expected(hop, Store(home / "decisions.db"))


def _is_of(topic: str, home: Path) -> bool:
    return topic.split(".")[2] in (home / "falkirk.json").read_text()
