"""Progress: how far each edge of the graph is computed, published and saved, and what a failure now would cost.

Everything here is computed from one snapshot of the home and the logs. The decision after a failure is the solver's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from falkirk.errors import UnrecoverableError
from falkirk.recovery.protocol.layout import Layout, Stage, cut
from falkirk.recovery.protocol.marks import Mark
from falkirk.recovery.protocol.rollback import UnitCheckpoints, decide_rollback
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import EpochNumber, LogId, LogKind
from falkirk.theory.projection import Cuts
from falkirk.user_tools.commands.history.application import OfflineApplication

EpochEnds = Sequence[tuple[EpochNumber, OffsetFrontier]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of an application at one moment.

    Args: ends: where each log ends. released: up to where each held log is published. cuts: where the epochs of each
        batch end in its inputs. lags: for each region and input, the records that were there and not read. repeats: the
        regions whose results are published again after a failure.
    """

    layout: Layout
    checkpoints: UnitCheckpoints
    ends: Mapping[LogId, OffsetFrontier]
    released: Mapping[LogId, OffsetFrontier] = field(default_factory=dict)
    cuts: Mapping[str, EpochEnds] = field(default_factory=dict)
    marks: Mapping[str, Sequence[Mark]] = field(default_factory=dict)
    lags: Mapping[tuple[str, str], int] = field(default_factory=dict)
    repeats: frozenset[str] = frozenset()

    @property
    def outside(self) -> dict[LogId, OffsetFrontier]:
        """The results that readers outside may have seen, as `decide` takes them."""
        return {**self.released, **{sink: self.ends[sink] for sink in self.layout.sinks}}

    def published(self, stage: Stage) -> OffsetFrontier:
        """Return up to where the results of a region are published, or given to the next region."""
        return self.released.get(stage.output, self.ends[stage.output])

    def computed(self, stage: Stage, log: LogId) -> int:
        """Return how much of an input is computed. A live region reports it once per Spark micro-batch."""
        saved = length(self.checkpoints[stage.name][-1].read, self.layout, log)
        if stage.is_cut:
            complete = _within(self.cuts.get(stage.name, ()), self.ends[stage.output])
            return max(saved, length(complete, self.layout, log))
        lag = self.lags.get((stage.name, str(log)))
        return saved if lag is None else max(saved, length(self.ends[log], self.layout, log) - lag)


def take_snapshot(visit: OfflineApplication, lags: Mapping[tuple[str, str], int]) -> Snapshot:
    """Look at an application. Raises: LogError, StoreError, HomeError."""
    return visit.unchanged(lambda: _look_at(visit, lags))


def _look_at(visit: OfflineApplication, lags: Mapping[tuple[str, str], int]) -> Snapshot:
    layout, logs = visit.shape.layout, visit.logs
    checkpoints = visit.checkpoints()
    # Released first: a result is in its log before it is released.
    released = {held: visit.recovery.released(held) for held in layout.held}
    names = dict.fromkeys([*layout.sources, *(stage.output for stage in layout.stages.values())])
    ends = {log: logs.ends(log) for log in names if log.kind is not LogKind.FILES}
    cuts = {name: visit.regions[name].cuts(EpochNumber(-1)) for name in layout.batches}
    for log in names:
        if log.kind is LogKind.FILES:  # it ends where the newest epoch has read it
            reads = [read for n, s in layout.stages.items() if log in s.inputs for _, read in cuts.get(n, ())[-1:]]
            ends[log] = cut(reads[-1], layout, log) if reads else EMPTY
    return Snapshot(
        layout=layout, checkpoints=checkpoints, ends=ends, released=released, cuts=cuts, marks=visit.recovery.marks,
        lags=lags, repeats=frozenset(r.name for r in visit.shape.regions if r.repeats),
    )  # fmt: skip


def frontiers(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the frontiers of each edge that has a log, as `graph_of` names the edges of inputs and `sinks`.

    there: the length of the log. computed: the part of it that is computed. out: its results are published, or given to
    the next region. saved: it is in a checkpoint, and is not read again after a failure.
    """
    layout, found = snapshot.layout, dict[str, dict[str, int]]()
    for name, stage in layout.stages.items():
        newest = snapshot.checkpoints[name][-1]
        for log in stage.inputs:
            there = length(snapshot.ends[log], layout, log)
            computed = min(there, snapshot.computed(stage, log))
            found[layout.edge(log, name)] = {
                "there": there,
                "computed": computed,
                "out": min(computed, _out(snapshot, stage, log, computed)),
                "saved": min(there, length(newest.read, layout, log)),
            }
    return found


def sink_frontiers(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the frontiers of the results of each region whose results leave the application, by region."""
    layout, found = snapshot.layout, dict[str, dict[str, int]]()
    for name, stage in layout.stages.items():
        if stage.output in layout.held or stage.output in layout.sinks:
            there = length(snapshot.ends[stage.output], layout, stage.output)
            found[name] = {
                "there": there,
                "computed": there,
                "out": min(there, length(snapshot.published(stage), layout, stage.output)),
                "saved": min(there, length(snapshot.checkpoints[name][-1].sent, layout, stage.output)),
            }
    return found


def _out(snapshot: Snapshot, stage: Stage, log: LogId, computed: int) -> int:
    """Return how much of an input has all its results published."""
    released = snapshot.released.get(stage.output)
    if released is None or snapshot.ends[stage.output] <= released:
        return computed
    if stage.is_cut:
        return length(_within(snapshot.cuts.get(stage.name, ()), released), snapshot.layout, log)
    covered = [p.read for p in snapshot.checkpoints[stage.name] if p.sent <= released]
    return length(covered[-1], snapshot.layout, log) if covered else 0


def _within(cuts: EpochEnds, epochs: OffsetFrontier) -> OffsetFrontier:
    """Return the input of the epochs that lie in a part of their log."""
    number = sum(int(n) for _, n in epochs.prefixes)
    return next((read for epoch, read in reversed(cuts) if epoch < number), EMPTY)


def length(frontier: OffsetFrontier, layout: Layout, log: LogId) -> int:
    """Return the number of a log's positions in a frontier."""
    return cut(frontier, layout, log).total()


# -- a failure --------------------------------------------------------------------------------------------------------


def failure(snapshot: Snapshot, failed: frozenset[str]) -> dict[str, Any]:
    """Return the effects if these regions died now: the regions that roll back, their checkpoints, and the records that
    are computed again.

    The result has `error` if the application could not recover.
    """
    layout = snapshot.layout
    try:
        cuts = {name: Cuts.of(snapshot.cuts.get(name, ())) for name in layout.batches}
        decision = decide_rollback(
            layout, snapshot.checkpoints, failed=failed, outside=snapshot.outside, marks=snapshot.marks, cuts=cuts
        )  # fmt: skip
    except UnrecoverableError as error:
        return {"failed": sorted(failed), "error": str(error), "goes": [], "stays": [], "again": 0, "repeated": []}
    goes, repeated = [], dict.fromkeys(decision.contradicts)
    for name, number in decision.goes.items():
        stage, checkpoints = layout.stages[name], snapshot.checkpoints[name]
        to = next(p for p in checkpoints if p.number == number)
        again: dict[str, int] = {"records": 0, "epochs": 0}
        for log in stage.inputs:
            unit = "epochs" if LogId(log).kind is LogKind.EPOCHS else "records"
            if log not in stage.views:
                again[unit] += max(0, snapshot.computed(stage, log) - length(to.read, layout, log))
        end = length(snapshot.ends[stage.output], layout, stage.output)
        settled = decision.settled.get(name)
        if name in snapshot.repeats and end > length(to.sent, layout, stage.output):
            repeated[str(stage.output)] = None
        goes.append({
            "unit": name, "to": number, "newest": checkpoints[-1].number, "made_at_s": to.made_at_s, **again,
            "why": _why(name, failed),
            "void": 0 if settled is None else max(0, end - length(settled, layout, stage.output)),
        })  # fmt: skip
    return {
        "failed": sorted(failed),
        "goes": goes,
        "stays": [name for name in layout.stages if name not in decision.goes],
        "again": sum(g["records"] for g in goes),
        "repeated": list(repeated),
    }


def _why(name: str, failed: frozenset[str]) -> str:
    return "it died" if name in failed else "it has read results that the others compute again"
