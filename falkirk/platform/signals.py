"""Signals: turns Ctrl-C and SIGTERM into a call that may take locks."""

import queue
import signal
import threading
from collections.abc import Callable


def stop_on_signals(stop: Callable[[], None], *signals: signal.Signals) -> None:
    """Call `stop`, in its own thread, at the first of `signals` (default: Ctrl-C and SIGTERM).

    A handler interrupts the main thread anywhere. If the main thread holds the lock of the Event that the handler sets,
    both wait forever. Only a SimpleQueue allows `put` in a handler. If Ctrl-C is handled, a second Ctrl-C ends the wait
    with KeyboardInterrupt.
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
