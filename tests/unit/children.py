"""Children for tests of the benches: functions that a separate process can import."""

from multiprocessing.connection import Connection
from typing import Any

from benchmarks.child import serve


def breaks(reason: str, pipe: "Connection[Any, Any]") -> None:
    """Fail before anything runs."""

    def start() -> None:
        raise SystemError(reason)

    serve(pipe, start, lambda running: running)
