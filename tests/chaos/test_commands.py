"""history, rollback, gc and stop, on an application in separate processes, while it runs and while it is stopped.

`integration/live_regions/test_commands_live.py` does the same in the session of the tests. The commands reach both in
the same way: through the store and the lock of the home. So this one, with two starts of Spark, is a soak.
"""

import os
from pathlib import Path

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Application
from tests.integration.rolling_back import FILE, back_and_on


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_back_and_on_while_it_runs_and_while_it_is_stopped(
    broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_and_on(broker, home, tag, monkeypatch, lambda *names: Application(FILE, *names))
