"""Echoes: an index of a key's rows and outputs, which shows early which row an output still needs.

The echo is the part of an output that depends only on its row, such as the page in (word, version, page). A row can
give an output only if both have the same echo. If a model has no echo, all rows have the same one, and the index says
little.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TypeVar

from falkirk.checker.model import Model
from falkirk.checker.run import InputRow, KeyRun

S = TypeVar("S")
_Positions = tuple[int, ...]


class RunIndex:
    """The index of one key's run. `positions` always means the number of rows consumed so far, by source."""

    def __init__(self, run: KeyRun, model: Model[S]) -> None:
        self._run = run
        self._wanted = [model.echo_of(output.values) for output in run.observed]
        self._outputs: dict[Hashable, list[int]] = {}
        for observed, echo in enumerate(self._wanted):
            self._outputs.setdefault(echo, []).append(observed)
        self._of_rows = [[model.echo(row.row) for row in source] for source in run.sources]
        self._rows: dict[Hashable, list[list[int]]] = {echo: [[] for _ in run.sources] for echo in self._outputs}
        for source, echoes in enumerate(self._of_rows):
            for position, echo in enumerate(echoes):
                if echo in self._rows:
                    self._rows[echo][source].append(position)

    def imbalance(self) -> int:
        """Return how many rows and outputs stay without a partner: for each echo, the difference of their numbers."""
        rows = Counter(echo for source in self._of_rows for echo in source)
        outputs = Counter(self._wanted)
        return sum(abs(rows[echo] - outputs[echo]) for echo in rows | outputs)

    def can_come(self, observed: int, positions: _Positions) -> bool:
        """Return whether some remaining row may give the output `observed`."""
        rows = self._rows[self._wanted[observed]]
        return any(each and each[-1] >= here for each, here in zip(rows, positions, strict=True))

    def next_position(self, source: int, observed: int, positions: _Positions) -> int | None:
        """Return the position of the next row of `source` that may give the output `observed`, or None."""
        rows = self._rows[self._wanted[observed]][source]
        index = bisect_left(rows, positions[source])
        return rows[index] if index < len(rows) else None

    def earlier(self, observed: int, positions: _Positions) -> Iterator[InputRow]:
        """Yield the consumed rows that may give the output `observed`."""
        rows = self._rows[self._wanted[observed]]
        for source, (each, here) in enumerate(zip(rows, positions, strict=True)):
            for position in each[: bisect_left(each, here)]:
                yield self._run.sources[source][position]

    def wanted(self, source: int, explained: int, positions: _Positions) -> int:
        """Return how many outputs from `explained` on have the echo of the next row of `source`."""
        outputs = self._outputs.get(self._of_rows[source][positions[source]], [])
        return len(outputs) - bisect_left(outputs, explained)

    def spare(self, source: int, explained: int, positions: _Positions) -> bool:
        """Return whether every output still finds a row if the next row of `source` has no output."""
        wanted = self.wanted(source, explained, positions)
        if not wanted:
            return True
        rows = self._rows[self._of_rows[source][positions[source]]]
        left = sum(len(each) - bisect_left(each, here) for each, here in zip(rows, positions, strict=True))
        return wanted < left
