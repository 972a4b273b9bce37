"""Rollback: decides the checkpoint of each region that rolls back, the results that become void, and the reasons."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from falkirk.errors import GuaranteeError, UnrecoverableError
from falkirk.errors.conditions.protocol import (
    CHECKPOINT_LOST,
    CONTRADICTS_RELEASED,
    NO_CHECKPOINT_LEFT,
    NO_CHECKPOINT_LEFT_OLD_ENOUGH,
)
from falkirk.recovery.protocol.layout import Layout, Stage, cut, sink_name
from falkirk.recovery.protocol.marks import Mark, fixed_by
from falkirk.recovery.protocol.ports import Checkpoint, LogRange
from falkirk.theory.frontier import EMPTY, TOP, Frontier, OffsetFrontier
from falkirk.theory.graph import Graph
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.projection import Cuts
from falkirk.theory.rollback import Rollback, solve

UnitCheckpoints = Mapping[str, tuple[Checkpoint, ...]]
"""The checkpoints of each region, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackDecision:
    """The checkpoint to which each region goes back.

    Args:
        goes: the checkpoint that each region goes back to. A region that is not in it stays where it is.
        settled: the regions among them of which some output becomes void, and up to where it still counts: φ. This may
            be more than the checkpoints say. The other regions send the same results again.
        contradicts: the sinks' topics to which more results were released than would still count, according to the φ of
            the checkpoints. This is an upper bound, known before any region is fenced.
        outside: the results that readers outside may have seen, as given.
        solution: the solution of the solver, with its reasons.
    """

    goes: Mapping[str, CheckpointNumber]
    settled: Mapping[str, OffsetFrontier]
    contradicts: tuple[str, ...]
    outside: Mapping[LogId, OffsetFrontier]
    solution: Rollback

    @property
    def takes_back(self) -> tuple[str, ...]:
        """The regions of `settled`."""
        return tuple(self.settled)

    def upto(self, name: str) -> Frontier:
        """Return f(p), the times of a region whose results still count."""
        return self.solution.chosen[name].frontier


def decide_rollback(
    layout: Layout,
    checkpoints: UnitCheckpoints,
    *,
    failed: frozenset[str],
    outside: Mapping[LogId, OffsetFrontier],
    asked: Mapping[str, CheckpointNumber] | None = None,
    marks: Mapping[str, Sequence[Mark]] | None = None,
    cuts: Mapping[str, Cuts] | None = None,
) -> RollbackDecision:
    """Solve Figure 6 for the regions that failed, or that are asked to go back.

    Args:
        outside: the results that readers outside may have seen: the released part of each held log, and all records of
            each sink that a region writes directly.
        asked: regions that must go back to this checkpoint or an older one, and compute their results again. Their
            later results become void even if a replay would send the same.
        marks: the marks of deterministic regions; see falkirk/recovery/protocol/marks.py.
        cuts: for each batch, where its epochs end. None: only the epochs with a checkpoint are known.
    Raises: UnrecoverableError: `NO_CHECKPOINT_LEFT`: a region has no checkpoint to go back to.
    """
    asked, marks = asked or {}, marks or {}
    graph, available = layout.graph(cuts_of(layout, checkpoints) if cuts is None else cuts), layout.restorable()
    for name, stage in layout.stages.items():
        mine = [p for p in checkpoints[name] if p.number <= asked.get(name, p.number)]
        if not mine:
            raise none_left(name)
        anywhere = stage.deterministic and name not in asked
        available[name] = _anywhere(layout, name, mine, marks.get(name, ())) if anywhere else saved(layout, name, mine)
        alive = name not in failed and name not in asked
        if alive and not stage.deterministic:
            # It is not known exactly how much the region has read so far. An overestimate is safe.
            _chain(available[name]).add(_everything(graph, name))
    for held in layout.held:
        out = outside.get(held, EMPTY)
        if not out.is_empty:
            gone = Metadata(frontier=out, delivered={layout.edge(held, sink_name(held)): out})
            available[sink_name(held)] = Checkpoints([Metadata(frontier=EMPTY), gone])
    solution = solve(graph, available)
    goes: dict[str, CheckpointNumber] = {}
    settled: dict[str, OffsetFrontier] = {}
    for name, stage in layout.stages.items():
        frontier = solution.chosen[name].frontier
        if frontier.is_top and name not in failed:
            continue
        at = newest_within(layout, name, checkpoints[name], frontier)
        goes[name] = at.number
        if not frontier.is_top:
            known = marks.get(name, ()) if isinstance(available[name], Anywhere) else ()
            settled[name] = cut(_settled(stage, frontier, at, known), layout, stage.output)
    counts = {layout.stages[name].output: upto for name, upto in settled.items()}
    contradicts = tuple(layout.held.get(t, t) for t in sorted(outside) if not outside[t] <= counts.get(t, TOP))
    return RollbackDecision(goes=goes, settled=settled, contradicts=contradicts, outside=outside, solution=solution)


def cuts_of(layout: Layout, checkpoints: UnitCheckpoints) -> dict[str, Cuts]:
    """Return where the epochs with a checkpoint end, for each batch."""
    return {
        n: Cuts.of((EpochNumber(p.number), p.read) for p in checkpoints[n] if p.number >= 0) for n in layout.batches
    }


def none_left(name: str) -> UnrecoverableError:
    """Return the error that a region has lost all its checkpoints."""
    return NO_CHECKPOINT_LEFT.error(where=name, missing=(name,), name=name)


def contradiction(topics: tuple[str, ...]) -> GuaranteeError:
    """Return the error that a requested rollback would make published results invalid."""
    return CONTRADICTS_RELEASED.error(topics=topics)


def refuse_loss(layout: Layout, decision: RollbackDecision, voids: Iterable[LogRange]) -> None:
    """Refuse a recovery that would void published results: the regions would publish other results in their place.

    Only sinks with a held log promise that this never happens. Any other sink may repeat its results after a recovery.

    Args: voids: the records that would become void, read after the fence.
    Raises: UnrecoverableError: `CHECKPOINT_LOST`.
    """
    lost: dict[LogId, int] = {}
    for topic, partition, first, last in voids:
        if topic in layout.held:
            out = decision.outside[topic].length_of(topic, partition)
            lost[topic] = lost.get(topic, 0) + max(0, int(min(out, last)) - first)
    results = {layout.held[topic]: number for topic, number in sorted(lost.items()) if number}
    if results:
        names = sorted(n for n in decision.takes_back if not layout.stages[n].deterministic) or decision.takes_back
        places = ", ".join(f"{n} at {_checkpoint(decision.goes[n])}" for n in names)
        raise CHECKPOINT_LOST.error(
            where=", ".join(names),
            missing=tuple(names),
            goes={n: decision.goes[n] for n in names},
            results=results,
            count=sum(results.values()),
            places=places,
        )


def _checkpoint(number: CheckpointNumber) -> str:
    return "the start" if number < 0 else f"checkpoint {number}"


def newest_within(layout: Layout, name: str, checkpoints: tuple[Checkpoint, ...], frontier: object) -> Checkpoint:
    """Return a region's newest checkpoint within a frontier: where a replay up to it begins.

    Raises: UnrecoverableError: `NO_CHECKPOINT_LEFT`.
    """
    within = [p for p in checkpoints if layout.metadata(name, p).frontier <= frontier]  # type: ignore[operator]
    if not within:
        raise NO_CHECKPOINT_LEFT_OLD_ENOUGH.error(where=name, missing=(name,), name=name)
    return within[-1]


def _settled(stage: Stage, frontier: Frontier, at: Checkpoint, marks: Iterable[Mark]) -> OffsetFrontier:
    """Return φ of a region that goes back to a frontier: up to here its results still count."""
    if not stage.is_cut:
        assert isinstance(frontier, OffsetFrontier), "a live region counts in offsets"
        return at.sent | fixed_by(marks, frontier)
    settled = stage.results().fixed(frontier)
    assert isinstance(settled, OffsetFrontier), "the records of the log are the epochs"
    return settled


def _everything(graph: Graph, name: str) -> Metadata:
    """Return Ξ(p,⊤)."""
    delivered = {e.name: e.domain.everything() for e in graph.inputs[name]}
    return Metadata(frontier=graph.processors[name].domain.everything(), delivered=delivered)


def saved(layout: Layout, name: str, checkpoints: Sequence[Checkpoint]) -> Checkpoints:
    """Return F*(p) of a region that can go back only to its checkpoints.

    A lost checkpoint is left out, because its region would compute other results in place of those that it sent.
    """
    metadata = [layout.metadata(name, p) for p in checkpoints]
    floor = [] if metadata[0].frontier.is_empty else [Metadata(frontier=metadata[0].frontier.nothing())]
    return Checkpoints([*floor, *metadata])


def _anywhere(layout: Layout, name: str, checkpoints: list[Checkpoint], marks: Iterable[Mark]) -> Anywhere:
    """Return F*(p) of a region that can replay its input up to any point, with its marks.

    A batch needs none: the number of an epoch is its place in the log.
    """
    if layout.stages[name].is_cut:
        return Anywhere(discards=False)
    known: list[tuple[Frontier, Frontier]] = [(layout.metadata(name, p).frontier, p.sent) for p in checkpoints]
    known += [(mark.read, mark.sent) for mark in marks]
    return Anywhere(discards=False, marks={edge: list(known) for edge in layout.outputs(name)})


def _chain(available: Available) -> Checkpoints:
    assert isinstance(available, Checkpoints)
    return available
