"""Visit: shows, from its home, where an application can roll back to and which data can be collected.

The application may run or not. A visit needs no Spark, and changes data only if the application does not run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import StructType

from falkirk.declare.application import Application
from falkirk.errors import HomeError
from falkirk.errors.conditions.commands import CHECKPOINT_INVALID, CHECKPOINT_UNKNOWN, NEVER_RAN
from falkirk.kafka_client.connection import Connection
from falkirk.plan.shape import Shape, read_shape
from falkirk.platform.data import DataPath
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.protocol.consistent_cuts import ConsistentCut, consistent_cuts
from falkirk.recovery.protocol.kept import NO_HISTORY, grouped_checkpoints
from falkirk.recovery.protocol.layout import cut, cutter_name, epochs_name
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.recovery.protocol.rollback import RollbackDecision, UnitCheckpoints
from falkirk.runtime.spark.application.logs import AllLogs, KafkaLogs
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.at_rest import BatchAtRest, epoch_log_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.sinks.epoch_logs import EpochLogs
from falkirk.runtime.spark.sinks.release import releaser_of
from falkirk.runtime.spark.sinks.writing import readable_ends, settle_at_rest
from falkirk.theory.constraints import Constraint
from falkirk.theory.history import History
from falkirk.theory.ids import CheckpointNumber, LogId, Offsets
from falkirk.user_tools.commands.history.unchanged import T, read_unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMove:
    """A region that rolls back.

    Args: newest: its newest checkpoint. to: the checkpoint. again: at least this many records of its input are read
        again. taken_back: this many of its output records become void. why: in one sentence.
    """

    region: str
    newest: Checkpoint
    to: Checkpoint
    again: int
    taken_back: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effect of a rollback.

    Args: outside: for each topic whose readers it would contradict, the number of results that are already published.
    """

    moves: tuple[RollbackMove, ...]
    stays: tuple[str, ...]
    outside: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A checkpoint to which a region can roll back, and the results since.

    Args: first: the oldest checkpoint that equals it: nothing was read and nothing was sent between the two. outside:
        the results are published to users.
    """

    region: str
    checkpoint: Checkpoint
    first: Checkpoint
    since: int
    outside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCut:
    """A cut to which the application can roll back, and its cost.

    Args: again: at least this many records are read again, by all regions. outside: for each topic whose readers it
        would contradict, the number of results that are already published.
    """

    cut: ConsistentCut
    again: int
    outside: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageCounts:
    """The numbers of checkpoints of each region, and records of each log between regions, that can be deleted."""

    checkpoints: Mapping[str, int]
    records: Mapping[LogId, int]


class OfflineApplication:
    """A visit to an application that has run in `home`.

    Args: app: as declared; it names the sinks. runs: another process runs it now. history: as in the application.
        place: the home's place, if the caller visits it repeatedly.
    Raises: HomeError: `NEVER_RAN`, `HOME_DAMAGED`.
    """

    def __init__(
        self,
        app: Application,
        home: Home,
        connection: Connection,
        *,
        runs: bool,
        history: History = NO_HISTORY,
        place: Storage | None = None,
    ) -> None:
        self.shape = shape = recorded_shape(home.data)
        self._runs, self._store = runs, home.store
        place = self.place = Storage(home=home, connection=connection) if place is None else place

        def settle(sink: str) -> Offsets:
            return readable_ends(place, sink) if runs else settle_at_rest(place, sink)

        files = {LogId.of_files(name): FileLog(name, folder, home.store) for name, folder in app.folders.items()}
        batches = {logs.name: BatchAtRest(logs, place, epoch_log_of(logs, place), files) for logs in shape.batches}
        self.regions: dict[str, RegionAtRest | BatchAtRest] = {
            **{logs.name: RegionAtRest(logs, place) for logs in shape.regions},
            **batches,
        }
        releasers = {
            b.logs.log: releaser_of(b.logs, app.sinks, b.epochs, place, settle, StructType(), runs_elsewhere=runs)
            for b in batches.values()
        }
        epochs = EpochLogs({b.logs.log: b.epochs for b in batches.values()}, releasers)
        self.logs = AllLogs(KafkaLogs(shape.layout, place, settle), epochs)
        self.recovery = RecoveryProtocol(
            shape.layout, self.regions, self.logs, home.store, lambda: 0.0,
            history=history, full_history=shape.full_history, live=[logs.name for logs in shape.regions],
            spare=app.spare_checkpoints,
        )  # fmt: skip

    def unchanged(self, read: Callable[[], T]) -> T:
        """Return what `read` returns while the application restores no checkpoint. Raises: as `read_unchanged`."""
        return read_unchanged(self._store, read)

    def cuts(self) -> tuple[ConsistentCut, ...]:
        """Return the consistent states to which the application can roll back, newest first."""
        return consistent_cuts(self.shape.layout, self.checkpoints())

    def past_cuts(self) -> tuple[PastCut, ...]:
        """Return the cuts with the price of each, newest first."""
        layout = self.shape.layout
        checkpoints, outside = self.unchanged(lambda: (self._checkpoints(), self.recovery.outside()))
        found = consistent_cuts(layout, checkpoints)
        return tuple(
            PastCut(cut=c, again=c.read_again(checkpoints), outside=c.contradicts(layout, outside)) for c in found
        )

    def checkpoints(self) -> UnitCheckpoints:
        """Return the checkpoints of all regions. Raises: HomeError: `RECOVERIES_MEANWHILE`."""
        return self.unchanged(self._checkpoints)

    def _checkpoints(self) -> UnitCheckpoints:
        return {name: region.checkpoints() for name, region in self.regions.items()}

    def asked(self, text: str) -> dict[str, CheckpointNumber]:
        """Return the requested checkpoint of `PROCESSOR@CHECKPOINT`: the number of a checkpoint, or `start`.

        Raises: DefinitionError: `CHECKPOINT_INVALID`, `CHECKPOINT_UNKNOWN`.
        """
        name, _, checkpoint = text.rpartition("@")
        region = self.shape.region_of(name)
        if region is None or not (checkpoint == "start" or checkpoint.isdigit()):
            raise CHECKPOINT_INVALID.error(text=text, names=", ".join(self.shape.names))
        number = CheckpointNumber(-1 if checkpoint == "start" else int(checkpoint))
        numbers = [p.number for p in self.regions[region].checkpoints()]
        if number not in numbers:
            raise CHECKPOINT_UNKNOWN.error(
                region=region,
                checkpoints=tuple(numbers),
                checkpoint=checkpoint,
                numbers=", ".join("start" if n < 0 else str(n) for n in numbers),
            )
        return {region: number}

    def preview(self, asked: Mapping[str, CheckpointNumber]) -> Preview:
        """Return the effect of a rollback, without performing it.

        Raises: GuaranteeError: `CHECKPOINT_TOO_OLD`. HomeError: `RECOVERIES_MEANWHILE`. LogError.
        """
        return self.unchanged(lambda: self._preview(asked))

    def _preview(self, asked: Mapping[str, CheckpointNumber]) -> Preview:
        layout = self.shape.layout
        failed = frozenset() if self._runs else frozenset(layout.stages)
        checkpoints = self._checkpoints()
        decision = self.recovery.decide(failed, asked, force=True, checkpoints=checkpoints)
        moves = []
        for name, number in decision.goes.items():
            newest, to = checkpoints[name][-1], next(p for p in checkpoints[name] if p.number == number)
            if number == newest.number and name not in asked and name not in decision.takes_back:
                continue  # it would resume from there without a rollback too
            stage = layout.stages[name]
            ends = self.logs.ends(stage.output)
            moves.append(
                RollbackMove(
                    region=name,
                    newest=newest,
                    to=to,
                    again=newest.read.total() - to.read.total(),
                    taken_back=ends.total() - decision.settled.get(name, ends).total(),
                    why=_why(decision, name, asked),
                )
            )
        moved = {m.region for m in moves}
        return Preview(
            moves=tuple(moves),
            stays=tuple(name for name in layout.stages if name not in moved),
            outside={topic: self._contradicted(decision, topic) for topic in decision.contradicts},
        )

    def _contradicted(self, decision: RollbackDecision, sink: str) -> int:
        """Return how many published results of a sink would become void."""
        layout = self.shape.layout
        topic = next((held for held, to in layout.held.items() if to == sink), LogId(sink))
        writer = layout.writer(topic)
        assert writer is not None
        out = self.logs.copied(topic, sink) if topic in layout.held else self.logs.ends(topic)
        return max(0, out.total() - decision.settled[writer.name].total())

    def history(self, unit: str | None = None) -> tuple[Past, ...]:
        """Return the checkpoints to which each region can roll back, region by region, oldest first.

        Args: unit: only of this region, or of the last one that runs this processor.
        Raises: DefinitionError: `REGION_UNKNOWN`. HomeError: `RECOVERIES_MEANWHILE`.
        """
        wanted = None if unit is None else self.shape.require_region(unit)
        return self.unchanged(lambda: self._history(wanted))

    def _history(self, wanted: str | None) -> tuple[Past, ...]:
        layout, found = self.shape.layout, []
        for name, region in self.regions.items():
            if wanted not in (None, name):
                continue
            output, checkpoints = layout.stages[name].output, region.checkpoints()
            end = self.logs.ends(output).total()  # after the checkpoints: a running region sends more meanwhile
            for equal in grouped_checkpoints(checkpoints):
                checkpoint = equal[-1]
                since = end - cut(checkpoint.sent, layout, output).total()
                outside = output in layout.sinks
                found.append(Past(region=name, checkpoint=checkpoint, first=equal[0], since=since, outside=outside))
        return tuple(found)

    def garbage(self) -> GarbageCounts:
        """Return the numbers of checkpoints and records that are never needed again."""
        self.recovery.begin_again()
        kept, below = self.recovery.garbage()
        checkpoints = {
            n: sum(p.number < kept[n][-1] and p.number not in kept[n] for p in r.checkpoints())
            for n, r in self.regions.items()
        }
        records = {}
        for topic, upto in below.items():
            first = self.logs.begins(topic)
            records[topic] = sum(
                max(0, int(upto.length(e) - first.length(e))) for e in self.shape.layout.sequences(topic)
            )
        return GarbageCounts(checkpoints=checkpoints, records=records)

    def roll_back(self, asked: Mapping[str, CheckpointNumber], *, force: bool) -> RollbackDecision:
        """Roll back a stopped application. Its next start resumes from there.

        Raises: GuaranteeError: `CONTRADICTS_RELEASED`, `CHECKPOINT_TOO_OLD`. LogError, HomeError.
        """
        assert not self._runs, "a running application rolls back itself, on request"
        return self.recovery.open(asked=asked, force=force)


def recorded_shape(home: Path | DataPath) -> Shape:
    """Return the shape of the application that has run in a home.

    Args: home: as of `read_shape`.
    Raises: HomeError: `NEVER_RAN`. Others: as `read_shape`.
    """
    shape = read_shape(home)
    if shape is None:
        raise never_ran(home)
    return shape


def never_ran(home: Path | DataPath | str) -> HomeError:
    """Return the error for a home in which no application has run. Args: home: its folder or address."""
    return NEVER_RAN.error(where=home)


def _why(decision: RollbackDecision, name: str, asked: Mapping[str, CheckpointNumber]) -> str:
    """Return why a region rolls back: the first constraint that excluded a later checkpoint."""
    if name in asked:
        return "asked for"
    graph = decision.solution.graph
    for refused in decision.solution.why(name):
        if refused.edge is None:
            return "it resumes from its newest checkpoint"
        edge = graph.edges[refused.edge]
        if refused.edge == epochs_name(name):
            continue  # its cutter goes back for the same reason as the region: the next refusal is that of a log
        if refused.constraint is Constraint.DELIVERED and edge.target in (name, cutter_name(name)):
            return f"it has read results of {edge.source} that become invalid"
        if refused.constraint is Constraint.DISCARDED and edge.source == name:
            return f"{edge.target} needs records again that {name} has already deleted"
        other = edge.source if edge.target == name else edge.target
        return (
            f"its checkpoint would not match that of {other}: one would have read records that the other has not sent"
        )
    return "it resumes from its newest checkpoint"
