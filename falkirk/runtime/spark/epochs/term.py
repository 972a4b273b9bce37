"""Term: the time in which a run of a batch may record decisions."""

import threading
from collections.abc import Callable


class Term:
    """The time in which a run may record decisions. It ends at once, even if jobs of the run take longer to end."""

    def __init__(self) -> None:
        self._lock, self._is_over = threading.Lock(), False

    def end(self) -> None:
        """End the term. When this returns, no further decision is recorded."""
        with self._lock:
            self._is_over = True

    @property
    def is_over(self) -> bool:
        """Whether the term has ended. Until it has, no other run of the batch has begun."""
        return self._is_over

    def record(self, decision: Callable[[], object]) -> bool:
        """Record a decision unless the term is over; return whether it was recorded."""
        with self._lock:
            if self._is_over:
                return False
            decision()
            return True
