"""Rollback: which region goes back to which of its checkpoints, what of the logs is voided, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from falkirk.errors import GuaranteeError, UnrecoverableError
from falkirk.protocol.layout import Layout, cut, sink_name
from falkirk.protocol.marks import Mark, fixed_by
from falkirk.protocol.ports import Point, Range
from falkirk.theory.frontier import EMPTY, TOP, Frontier, OffsetFrontier
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.rollback import Rollback, solve
from falkirk.theory.times import TopicPartition

Points = Mapping[str, tuple[Point, ...]]
"""The checkpoints of each region, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who goes where.

    Args:
        goes: the checkpoint that each region goes back to; one that is not there stays as it is.
        takes_back: those of them whose later output is voided; what the others send again is the same as before.
        contradicts: the sinks' topics to which more has been released than would count, by the φ of the checkpoints: an
            upper bound, which is known before any region is fenced.
        outside: how much the outside may have seen, as given.
        solution: the solver's, with its reasons.
    """

    goes: Mapping[str, int]
    takes_back: tuple[str, ...]
    contradicts: tuple[str, ...]
    outside: Mapping[str, OffsetFrontier]
    solution: Rollback

    def upto(self, name: str) -> OffsetFrontier:
        """Return f(p), the input of a region whose results still count."""
        frontier = self.solution.chosen[name].frontier
        assert isinstance(frontier, OffsetFrontier)
        return frontier


def decide(
    layout: Layout,
    points: Points,
    *,
    failed: frozenset[str],
    outside: Mapping[str, OffsetFrontier],
    asked: Mapping[str, int] | None = None,
    marks: Mapping[str, Sequence[Mark]] | None = None,
) -> Decision:
    """Solve Figure 6 for the regions that failed, or that are asked to go back.

    Args:
        outside: how much the outside may have seen: of each log that is held back, what was released, and of each
            sink that a region writes itself, all of it.
        asked: regions that shall go back to a checkpoint, or before it, and be computed anew: what they sent since is
            taken back even if the same would be sent again.
        marks: what deterministic regions have sent by when, as far as it is known apart from their checkpoints.
    Raises: UnrecoverableError: `NO_CHECKPOINT_LEFT`: a region has no checkpoint to go back to.
    """
    asked, marks = asked or {}, marks or {}
    available = layout.restorable()
    for name, stage in layout.stages.items():
        mine = [p for p in points[name] if p.number <= asked.get(name, p.number)]
        if not mine:
            raise none_left(name)
        anywhere = stage.deterministic and name not in asked
        available[name] = _anywhere(layout, name, mine, marks.get(name, ())) if anywhere else _saved(layout, name, mine)
        alive = name not in failed and name not in asked
        if alive and not stage.deterministic:
            # What it has read so far is not known exactly; over-estimating it is safe.
            top = Metadata(frontier=TOP, delivered={layout.edge(t, name): TOP for t in stage.inputs})
            _chain(available[name]).add(top)
    for held in layout.held:
        out = outside.get(held, EMPTY)
        if not out.is_empty:
            gone = Metadata(frontier=out, delivered={layout.edge(held, sink_name(held)): out})
            available[sink_name(held)] = Checkpoints([Metadata(frontier=EMPTY), gone])
    solution = solve(layout.graph, available)
    goes: dict[str, int] = {}
    counts: dict[str, OffsetFrontier] = {}
    takes_back: list[str] = []
    for name, stage in layout.stages.items():
        frontier = solution.chosen[name].frontier
        if frontier.is_top and name not in failed:
            continue
        at = newest_within(layout, name, points[name], frontier)
        goes[name] = at.number
        if not frontier.is_top:
            settled = at.sent
            if isinstance(available[name], Anywhere):
                assert isinstance(frontier, OffsetFrontier), "a region's times are offsets"
                settled = settled | fixed_by(marks.get(name, ()), frontier)
            counts[stage.output] = cut(settled, layout, stage.output)
            takes_back.append(name)
    contradicts = tuple(layout.held.get(t, t) for t in sorted(outside) if not outside[t] <= counts.get(t, TOP))
    return Decision(
        goes=goes, takes_back=tuple(takes_back), contradicts=contradicts, outside=outside, solution=solution
    )


def none_left(name: str) -> UnrecoverableError:
    """Return the error that a region has lost all its checkpoints."""
    return UnrecoverableError(
        "NO_CHECKPOINT_LEFT",
        f"region {name!r} has no checkpoint to go back to.",
        where=name,
        hint="Its input no longer reaches back to the beginning. Restore the home from a backup.",
        missing=(name,),
    )


def contradiction(topics: tuple[str, ...]) -> GuaranteeError:
    """Return the error that a rollback by hand would take back what is outside."""
    return GuaranteeError(
        "CONTRADICTS_RELEASED",
        f"results in {', '.join(topics)} are outside already, and would be contradicted.",
        hint="Choose a later point, or force it (--force): then new results follow the old ones in these topics.",
        topics=topics,
    )


def refuse_loss(layout: Layout, decision: Decision, voids: Iterable[Range]) -> None:
    """Refuse a recovery that would void published results: their regions would compute others in their place.

    Only sinks that are held back are promised otherwise. Any other that a recovery takes back may repeat its results.
    Args: voids: the records that would count as nothing, read behind the fence.
    Raises: UnrecoverableError: `CHECKPOINT_LOST`.
    """
    lost: dict[str, int] = {}
    for topic, partition, first, last in voids:
        if topic in layout.held:
            out = decision.outside[topic].length(TopicPartition(topic=topic, partition=partition))
            lost[topic] = lost.get(topic, 0) + max(0, int(min(out, last)) - first)
    results = {layout.held[topic]: number for topic, number in sorted(lost.items()) if number}
    if results:
        names = sorted(n for n in decision.takes_back if not layout.stages[n].deterministic) or decision.takes_back
        places = ", ".join(f"{n} at {_point(decision.goes[n])}" for n in names)
        raise UnrecoverableError(
            "CHECKPOINT_LOST",
            f"{sum(results.values())} published results in {', '.join(results)} rest on checkpoints that can't be used "
            f"any more. The newest ones that can: {places}.",
            where=", ".join(names),
            hint="Restore the home from a backup. Or add --force to `falkirk run`: then other results follow these in "
            "the same topics.",
            missing=tuple(names),
            goes={n: decision.goes[n] for n in names},
            results=results,
        )


def _point(number: int) -> str:
    return "the start" if number < 0 else f"checkpoint {number}"


def newest_within(layout: Layout, name: str, points: tuple[Point, ...], frontier: object) -> Point:
    """Return a region's newest checkpoint within a frontier: where a replay up to it begins.

    Raises: UnrecoverableError: `NO_CHECKPOINT_LEFT`.
    """
    within = [p for p in points if layout.metadata(name, p).frontier <= frontier]  # type: ignore[operator]
    if not within:
        raise UnrecoverableError(
            "NO_CHECKPOINT_LEFT",
            f"region {name!r} has no checkpoint as old as it would have to go back.",
            where=name,
            hint="Restore the home from a backup.",
            missing=(name,),
        )
    return within[-1]


def _saved(layout: Layout, name: str, points: list[Point]) -> Checkpoints:
    """Return F*(p) of a region that goes back to what it has saved. What it sent at a checkpoint that is lost would be
    computed anew, so nothing is known of such a checkpoint."""
    metadata = [layout.metadata(name, p) for p in points]
    floor = [] if metadata[0].frontier.is_empty else [Metadata(frontier=EMPTY)]
    return Checkpoints([*floor, *metadata])


def _anywhere(layout: Layout, name: str, points: list[Point], marks: Iterable[Mark]) -> Anywhere:
    """Return F*(p) of a region that replays its input up to anywhere, with what it has sent by when."""
    known: list[tuple[Frontier, Frontier]] = [(layout.metadata(name, p).frontier, p.sent) for p in points]
    known += [(mark.read, mark.sent) for mark in marks]
    return Anywhere(discards=False, marks={edge: list(known) for edge in layout.outputs(name)})


def _chain(available: Available) -> Checkpoints:
    assert isinstance(available, Checkpoints)
    return available
