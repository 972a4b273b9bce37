"""The application of tests/integration/tentative.py in one process that kills itself with -9 during an action.

Arguments: the place at which to die, and at which pass of this place; `never` to run until standard input closes.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.application import logs
from falkirk.runtime.spark.sinks import copying
from falkirk.runtime.supervision.query import run_here
from tests.integration.tentative import application

#: The places: which function is called, whether to die before or after it, and how often it is certainly called. At the
#: first place, no test watches the collection yet.
PLACES: dict[str, tuple[object, str, bool, int]] = {
    "after a release": (copying, "copy", True, 2),
    "after a recovery is decided": (Store, "open_recovery", True, 1),
    "between checkpoints and logs": (Topics, "delete_below", False, 2),
}
#: A release copies at most this many records at once, so that it has several parts.
RECORDS_AT_ONCE = 50


def die_at(place: str, time: int) -> None:
    owner, name, behind, _ = PLACES[place]
    real: Callable[..., Any] = getattr(owner, name)
    left = time

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


if __name__ == "__main__":
    where, which = sys.argv[1], int(sys.argv[2])
    if where != "never":
        die_at(where, which)
    logs.RECORDS_AT_ONCE = RECORDS_AT_ONCE
    home = Path(os.environ["HOME_FOLDER"])
    events, counts = os.environ["EVENTS"], os.environ["COUNTS"]
    app = application(events, counts, home, history=0, interval="5 seconds")
    query = run_here(app, Connection.of(os.environ["KAFKA"]))
    print("started", flush=True)
    sys.stdin.read()
    query.stop()
