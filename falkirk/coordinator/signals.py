"""Ctrl-C and SIGTERM, turned into a call that may take locks."""

import queue
import signal
import threading
from collections.abc import Callable


def stop_on_signals(stop: Callable[[], None], *signals: signal.Signals) -> None:
    """Call `stop`, in a thread of its own, at the first of `signals` (default: Ctrl-C and SIGTERM).

    A handler runs in the middle of whatever the main thread does. If that holds the lock of the very Event that the
    handler would set, both wait for ever; a SimpleQueue alone is made to be put into from there. A second Ctrl-C
    gives up waiting, where the first was to be handled.
    """
    came: queue.SimpleQueue[int] = queue.SimpleQueue()

    def handle(number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        came.put(number)

    def await_one() -> None:
        came.get()
        stop()

    for number in signals or (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    threading.Thread(target=await_one, name="falkirk-signals", daemon=True).start()
