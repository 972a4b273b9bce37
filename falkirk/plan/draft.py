"""Drafts: regions while the planner cuts them, and the logs between them."""

from dataclasses import dataclass, field

from falkirk.analysis.functions import spoken
from falkirk.declare.stream import Node, SourceNode
from falkirk.frames.stamped import Frame
from falkirk.plan.live_determinism import LiveDifferences
from falkirk.plan.reasons import Undetermined


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """An internal log as its readers see it; `split` and `repeated_by` as in `Draft`.

    `undetermined`: the operations that make it tentative. `grouped_by`: the columns of the key for whose every change
    it has a record.
    """

    source: SourceNode
    split: bool
    undetermined: Undetermined | None
    grouped_by: tuple[str, ...]
    repeated_by: str | None


@dataclass(kw_only=True)
class Draft:
    """A region while the planner cuts it: where it begins, its steps so far, and the frame after them.

    `began`: the names of the columns that it reads, by Catalyst's identity. `keys`: the columns that partition its log.
    `split`: the log that it reads may hold several records made from one record of the user's source.
    `inherited`: the operations that make its input log tentative. `doubts`: the operations of its steps that may differ
    on a replay. `repeated_by`: the acknowledged processor, here or upstream, that may repeat results.
    `decided`: the formulas on which its state, and several results of one record, depend.
    `ordered_by`: the sequencer hop that it reads and does not share. A second hop would have another order.
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
    doubts: LiveDifferences = field(default_factory=LiveDifferences)

    @property
    def undetermined(self) -> Undetermined | None:
        """The cause that makes it tentative. Operations that may differ come before a policy without any."""
        causes = [cause for cause in (self.inherited, self.doubts.matters) if cause is not None]
        return next((cause for cause in causes if cause.operations), causes[0] if causes else None)

    @property
    def apart(self) -> str | None:
        """The reason why a second computation for another reader would differ; None: it would not.

        Values from before its own hop are recorded there. A second hop would have another order.
        """
        drawn = self.doubts.drawn_for(self.frame)
        if drawn:
            return f"each would get another value of {spoken(drawn[0])}"
        return None if self.ordered_by is None else f"each would get another order of {self.ordered_by}"
