"""One broker for all workers of a test run: the first one that needs it starts it, and the last one stops it.

A broker in each worker would run the same code cold, and idle brokers cost CPU time as well.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from falkirk.environment import broker as local_broker
from falkirk.environment.broker import Broker


@contextmanager
def shared_broker(run: Path) -> Iterator[Broker]:
    """Use the broker of a run. Args: run: a folder that all workers of the run have in common."""
    folder, users = run / "broker", run / "broker-users"
    users.mkdir(exist_ok=True)
    me = users / str(os.getpid())
    with _locked(run):
        me.touch()
        broker = local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    try:
        yield broker
    finally:
        with _locked(run):
            me.unlink()
            if not any(users.iterdir()):
                local_broker.stop(folder)


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    with open(run / "broker-lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
