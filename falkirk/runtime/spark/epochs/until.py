"""Until: how far a batch reads in a run that ends by itself (`falkirk run --once`)."""

from collections.abc import Mapping
from dataclasses import dataclass

from falkirk.declare.cut import ByClock, ByRows, ByTime, Cut, OnArrival
from falkirk.theory.ids import LogId, Offset, Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """The ends of a batch's inputs.

    Args: ends: the ends that are known. Other inputs have no end yet. is_final: all of them are known.
    """

    ends: Mapping[LogId, Offsets]
    is_final: bool

    def clip(self, log: LogId, first: Offsets, there: Offsets) -> Offsets:
        """Return where an input ends for this run. Args: first: where the next epoch begins. there: its present end."""
        if log not in self.ends:
            return there
        known = self.ends[log]
        return {p: max(first.get(p, Offset(0)), min(end, known.get(p, Offset(0)))) for p, end in there.items()}

    def cut(self, cut: Cut | ByTime) -> Cut | ByTime:
        """Return when an epoch is complete. Once all ends are known, the rest is not worth waiting for."""
        if not self.is_final or isinstance(cut, ByTime | OnArrival):
            return cut
        if isinstance(cut, ByRows):
            return OnArrival(records_max=cut.rows)
        return OnArrival(records_max=cut.records_max) if isinstance(cut, ByClock) else OnArrival()
