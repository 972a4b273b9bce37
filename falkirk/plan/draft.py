"""Drafts: regions while they are being cut, and the logs between them."""

from dataclasses import dataclass, field

from falkirk.analysis.functions import spoken
from falkirk.declare.stream import Node, SourceNode
from falkirk.frames.stamped import Frame
from falkirk.plan.live_determinism import Doubts
from falkirk.plan.reasons import Undetermined


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """An internal log as its readers see it; `split` and `repeated_by` as in `Draft`. `undetermined`: what makes it
    tentative. `grouped_by`: the columns of which it has a record whenever what they stand for changes."""

    source: SourceNode
    split: bool
    undetermined: Undetermined | None
    grouped_by: tuple[str, ...]
    repeated_by: str | None


@dataclass(kw_only=True)
class Draft:
    """A region while it is being cut: where it begins, its steps so far, and the frame they lead to.

    `began`: the names of the columns that it reads, by Catalyst's identity. `keys`: those that partition its log.
    `split`: the log it reads may hold several records that come from one record of the user's source.
    `inherited`: what makes the log tentative that it reads. `doubts`: what may come out differently in its own steps.
    `repeated_by`: the acknowledged processor, here or before, that may send again.
    `decided`: the formulas of what its state, and results that share a record, depend on.
    `ordered_by`: the hop of its own that it reads: another one like it would have another order.
    """

    source: SourceNode
    reads_hop: bool
    split: bool
    node: Node
    frame: Frame
    keys: dict[str, int]
    began: dict[int, str]
    processors: list[str] = field(default_factory=list)
    inherited: Undetermined | None = None
    repeated_by: str | None = None
    ordered_by: str | None = None
    decided: str = ""
    doubts: Doubts = field(default_factory=Doubts)

    @property
    def undetermined(self) -> Undetermined | None:
        """What makes it tentative: what may come out differently rather than a policy by which nothing may."""
        causes = [cause for cause in (self.inherited, self.doubts.matters) if cause is not None]
        return next((cause for cause in causes if cause.operations), causes[0] if causes else None)

    @property
    def apart(self) -> str | None:
        """Why it would come to something else, were it computed a second time for another reader; None: it would not.

        What it drew in a hop of its own is behind that hop.
        """
        drawn = self.doubts.drawn_for(self.frame)
        if drawn:
            return f"each would get another value of {spoken(drawn[0])}"
        return None if self.ordered_by is None else f"each would get another order of {self.ordered_by}"
