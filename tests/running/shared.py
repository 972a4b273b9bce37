"""One broker for all workers of a test run, and folders that one of them makes.

The first worker that needs the broker starts it, and the last one stops it. A broker in each worker would run the same
code cold, and idle brokers cost CPU time as well.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
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
    with _locked(run / "broker-lock"):
        me.touch()
        broker = local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    try:
        yield broker
    finally:
        with _locked(run / "broker-lock"):
            me.unlink()
            if not any(users.iterdir()):
                local_broker.stop(folder)


def made_once(run: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first worker which needs it makes: whole, or not at all if `make` fails.

    Args: run: a folder that all workers of the run have in common. make: fills an empty folder.
    """
    folder, part = run / name, run / f"{name}-part"
    with _locked(run / f"{name}-lock"):
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with open(file, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
