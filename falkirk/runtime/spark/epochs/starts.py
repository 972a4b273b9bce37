"""Starts: where a batch began to read each log, for the epochs from before it read all of them."""

from falkirk.recovery.decision_store import Store
from falkirk.theory.ids import Positions


class Starts:
    """Where a batch began to read each log. Args: region: the name of the batch."""

    def __init__(self, region: str, store: Store) -> None:
        self._region, self._store = region, store
        self._known: Positions | None = None

    def forget(self) -> None:
        """Read the store again at the next question: the batch may read further logs from now on."""
        self._known = None

    def absent(self, first: Positions) -> Positions:
        """Return the logs that an epoch lacks, with the end of its empty range there. Args: first: of the epoch."""
        if self._known is None:
            record = self._store.region(self._region)
            self._known = {} if record is None else record.start_offsets
        return {log: offsets for log, offsets in self._known.items() if log not in first}
