"""Drafts: regions while the planner cuts them, and the logs between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from falkirk.declare.nodes import Node, SourceNode, Step
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.live_determinism import LiveDifferences
from falkirk.plan.reasons import Undetermined
from falkirk.plan.unit import numbered_sources
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis import columns
from falkirk.steps.static_analysis.functions import operation_name
from falkirk.steps.static_analysis.udfs import KnownUdf


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


def begin_draft(source: SourceNode, frame: Frame) -> "Draft":
    """Return the draft that begins at a source. Args: frame: of its records.

    Raises: DefinitionError: `COLUMN_MISSING`: its schema lacks a column of its key.
    """
    columns.require_columns(
        source.topic.keys, frame.columns, source.topic.where,
        lambda key: f"source {source.name!r} is keyed by {key!r}, which its schema lacks.",
    )  # fmt: skip
    ids = columns.expression_ids(frame)
    keys = {key: ids[key] for key in source.topic.keys}
    own = {column: f"{part} of the record" for part, column in source.topic.record_columns.items()}
    began = {number: own.get(name, name) for name, number in ids.items()}
    return Draft(source=source, reads_hop=False, split=False, node=source, frame=frame, keys=keys, began=began)


@dataclass(kw_only=True)
class Draft:
    """A region while the planner cuts it: where it begins, its steps so far, and the frame after them.

    `began`: the names of the columns that it reads, by Catalyst's identity. `keys`: the columns that partition its log.
    `split`: the log that it reads may hold several records made from one record of the user's source.
    `inherited`: the operations that make its input log tentative. `differences`: the operations of its steps that may
    differ on a replay. `repeated_by`: the acknowledged processor, here or upstream, that may repeat results.
    `decided`: the formulas on which its state, and several results of one record, depend.
    `joined`, `join_places`: as in `Region`. `others`: the sources that unions add, in the order of their
    numbers. `united`: the formulas of the sides of its unions.
    `ordered_by`: the sequencer hop that it reads and does not share. A second hop would have another order.
    `unkeyed`, `kept`: the frames before and after its newest keyed step. `is_chain`: it has several.
    `sharded_by`: see `Chain` of falkirk/steps/live/event_time.py. `shards`: the names of these columns.
    `called`: the UDFs of its steps. `keeps_tracebacks`: its keyed step comes after one of them.
    `keyed_by`: the columns of its log by which its keyed step groups; None: it has none, or its steps compute the key.
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
    differences: LiveDifferences = field(default_factory=LiveDifferences)
    joined: tuple[SourceNode, ...] = ()
    join_places: tuple[tuple[int, ...], ...] = ()
    others: tuple[SourceNode, ...] = ()
    united: tuple[str, ...] = ()
    keyed_by: tuple[str, ...] | None = None
    unkeyed: Frame | None = None
    kept: Frame | None = None
    sharded_by: tuple[int, ...] = ()
    shards: tuple[str, ...] = ()
    is_chain: bool = False
    called: tuple[KnownUdf, ...] = ()
    keeps_tracebacks: bool = False

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The sources that it reads, in the order of their numbers."""
        return numbered_sources(self.source, self.joined, self.others)

    def note_key(self, keys: Sequence[object]) -> None:
        """Note the key of its keyed step, whose frame is the present one. Args: keys: names of columns, or others."""
        ids = columns.expression_ids(self.frame)
        if self.frame.keyed:
            self.is_chain = True
        else:
            chosen = {*self.keys.values()}
            found = {i: key for i, key in enumerate(keys) if isinstance(key, str) and ids.get(key) in chosen}
            self.sharded_by, self.shards = (*found.keys(),), (*found.values(),)
        self.unkeyed = self.frame
        read = [self.began.get(ids.get(key, -1)) if isinstance(key, str) else None for key in keys]
        named = tuple(name for name in read if name is not None)
        self.keyed_by = named if len(named) == len(read) else None

    def note_step(self, step: Step, frame: Frame) -> None:
        """Note the next step and the frame after it."""
        self.frame, self.node = frame, replace(step, parent=self.node)
        if step.operation in KEYED:
            self.kept = frame

    @property
    def undetermined(self) -> Undetermined | None:
        """The cause that makes it tentative. Operations that may differ come before a policy without any."""
        causes = [cause for cause in (self.inherited, self.differences.matters) if cause is not None]
        return next((cause for cause in causes if cause.operations), causes[0] if causes else None)

    @property
    def apart(self) -> str | None:
        """The reason why a second computation for another reader would differ; None: it would not.

        Values from before its own hop are recorded there. A second hop would have another order.
        """
        varying = self.differences.varying_for(self.frame)
        if varying:
            return f"without the hop, each reader would compute {operation_name(varying[0])} itself"
        if self.ordered_by is not None:
            return f"without the hop, each reader would read {self.ordered_by} in another order"
        return None

    def needs_sequencer(self, keys: tuple[Any, ...], operation: str = "") -> str | None:
        """Return why a keyed step needs a hop that fixes the order of its records, or None.

        Args: operation: the kind of the step.
        """
        label = columns.key_label(keys)
        read = f"the hop {self.source.name}" if self.reads_hop else f"the source {self.source.name}"
        same, order = f"so records with the same `{label}` may come from", "in an order that a replay may change"
        several = f"{same} several partitions, {order}"
        if self.others and (not self.keys or operation == "stateful"):
            read = " and ".join(each.topic.topic for each in self.sources)
            return f"{read} are several topics, {same} each of them, {order}"
        instead = "" if self.reads_hop or operation != "stateful" else (
            ". With withWatermark() and stateful(order=), the function would get records by their times, without a hop"
        )  # fmt: skip
        if not self.keys and self.reads_hop:
            return f"{read} is not partitioned by a key, {several}"
        if not self.keys:
            return f"records with the same `{label}` may be in several partitions of {read}, {order}{instead}"
        ids = columns.expression_ids(self.frame)
        grouped = {ids.get(key) for key in keys if isinstance(key, str)}
        if set(self.keys.values()) <= grouped:
            return None
        return f"{read} is partitioned by {', '.join(f'`{key}`' for key in self.keys)}, {several}{instead}"
