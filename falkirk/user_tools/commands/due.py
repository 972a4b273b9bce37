"""Due: the rows and the bad records that live regions must have published, from the records of their sources.

Spark applies the recorded steps of the plan's regions to them as a batch. A log between two regions is not read: its
rows are those of the region that writes it. `falkirk verify outputs` judges results by these rows, and `falkirk why`
finds with them the records that made a result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from falkirk.declare.nodes import NEWEST_ROW, UNIONS, Node, SourceNode, Step, steps_of
from falkirk.declare.windows import split_windows, unchanged
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.commands import NOT_CHECKABLE
from falkirk.errors.location import SourceLocation
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.region import Region
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.batch.running import updated
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame, attempt
from falkirk.steps.live.unions import number_source, put_beside
from falkirk.steps.sources.topics import parse_records, parsing
from falkirk.steps.static_analysis.determinism import operations, undetermined
from falkirk.steps.static_analysis.functions import Nature, entry_of
from falkirk.steps.static_analysis.typed import of_types
from falkirk.user_tools.commands import due_timed
from falkirk.user_tools.commands.due_timed import RegionRows

#: Steps with a group's state, each result of which depends on the one before it.
AGGREGATIONS = ("agg", "count")
#: All with a state that `of` leaves to others, and their names for users.
_KEYED = {**dict.fromkeys(AGGREGATIONS, "`groupBy`"), NEWEST_ROW: "lookup"}
#: Spark's relation that gives a row for each sliding window. `due_timed` computes windows without it.
_OF_WINDOWS = {"Expand"}


class Declared(Protocol):
    """A sink, or the region whose results are recomputed."""

    @property
    def name(self) -> str: ...
    @property
    def where(self) -> SourceLocation: ...


def not_checkable(of: Declared, reason: str) -> DefinitionError:
    """Return the error `NOT_CHECKABLE`."""
    return NOT_CHECKABLE.error(where=of.where, sink=of.name, reason=reason)


def own_session(session: SparkSession) -> SparkSession:
    """Return a session in which aggregates get the rows of a group in their order, however many groups there are."""
    own = session.newSession()
    for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.shuffle.partitions"):
        own.conf.set(name, str(session.conf.get(name)))
    own.conf.set("spark.sql.execution.useObjectHashAggregateExec", "false")
    return own


def keeps_order(region: Region) -> bool:
    """Return whether an aggregation gets the results of the steps with event time before it in the order of stamps.

    So it is in a chain after `dropDuplicates`. Windows that close together have an order of their own, and a log
    between two regions mixes the keys of the first one.
    """
    keyed = [step.operation for step in region.steps() if step.operation in KEYED]
    return bool(region.sharded_by) and set(keyed[:-1]) == {"dropDuplicates"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The input of an evaluation.

    Args: of: whose results they are. hops: the regions by the internal topics that they write. A log of another region
        is read. read: returns the records of a source. partitions: the numbers of partitions of topics. judges: refuse
        steps whose results can't be compared. Otherwise the caller knows that the steps are deterministic, and they may
        call Python.
    """

    of: Declared
    hops: Mapping[str, Region]
    read: Callable[[SourceNode], DataFrame]
    partitions: Mapping[str, int]
    judges: bool = True


class RegionEvaluation:
    """Computes what the regions on the path to a sink must have published.

    Attributes: topics: the topics that it has read, each at the place that is its number in stamps. raw: their records.
    """

    def __init__(self, given: Given, session: SparkSession) -> None:
        self._sink, self._hops, self._given, self._session = given.of, given.hops, given, session
        self._known: dict[str, RegionRows] = {}
        self.topics: list[str] = []
        self.raw: list[DataFrame] = []

    def of(self, region: Region) -> RegionRows:
        """Return the rows before the keyed step of a region, or all if it has none, and its bad records.

        Raises: DefinitionError: `NOT_CHECKABLE`.
        """
        if region.name not in self._known:
            node = region.node
            before = node.parent if isinstance(node, Step) and node.operation in _KEYED else node
            self._known[region.name] = self.after(before, region)
        return self._known[region.name]

    def close(self) -> None:
        """Free the records."""
        for records in self.raw:
            records.unpersist()

    def recomputable(self, frame: Frame, step: Step) -> Frame:
        """Return the frame after a step that is deterministic. Raises: DefinitionError: `NOT_CHECKABLE`."""
        after = frames.apply(frame, step)
        if not self._given.judges:
            return after
        unknown = set(undetermined(operations(frame.data), operations(after.data)))
        if step.operation == "windows":
            unknown -= _OF_WINDOWS
        if unknown:
            raise not_checkable(self._sink, f"{', '.join(sorted(unknown))} ({step.where}) may differ each time")
        return after

    def after(self, node: Node, region: Region, source: SourceNode | None = None) -> RegionRows:
        """Return the rows after a node of a region.

        Args: source: at which the steps of the right side of a join begin. Raises: DefinitionError: `NOT_CHECKABLE`.
        """
        if not isinstance(node, Step):
            source = node if isinstance(node, SourceNode) else source
            assert source is not None, "the steps of a region begin at its sources"
            return self._begin(source)
        judges = self._given.judges
        if node.operation == "stateful" or (node.operation == "map_rows" and judges):
            raise not_checkable(self._sink, "it calls Python" if judges else "it has steps after its `stateful`")
        if node.operation in _KEYED and judges:
            raise not_checkable(self._sink, f"it has steps after its {_KEYED[node.operation]}")
        due = self.after(node.parent, region, source)
        if node.operation in _KEYED:
            frame, _ = updated(due.frame, node, lambda schema: empty(self._session, schema))
            return replace(due, frame=frame)
        match node.operation:
            case "withWatermark":
                return due_timed.timed(due, node)
            case "dropDuplicates":
                return due_timed.deduplicated(due, node)
            case "windows":
                return due_timed.windows(due, node, self._planned(due.frame, node))
            case "timedJoin":
                number = sum(step.operation == node.operation for step in steps_of(node.parent))
                right = self.after(node.arguments[0].node, region, region.joined[number])
                counts = self._given.partitions
                first, second = (counts[region.sources[n].topic.topic] for n in (0, number + 1))
                return due_timed.joined(due, right, node, (first, second))
        if node.operation in UNIONS:
            return self._united(due, self.after(node.arguments[0].node, region), node)
        return self._stepped(due, node)

    def _planned(self, frame: Frame, step: Step) -> Frame:
        """Return the frame after windows, by Spark's analysis."""
        planned, ([window], _) = self.recomputable(frame, step), split_windows(step.arguments[0])
        rounded = of_types(planned.data, operations(planned.data))
        sums = sorted({name for name in rounded if entry_of(name).nature is Nature.FLOATING})
        if sums and not window.slide and self._given.judges:
            reason = f"{', '.join(sums)} ({step.where}) adds doubles, and sessions that merge add them in another order"
            raise not_checkable(self._sink, reason)
        return planned

    def _united(self, left: RegionRows, right: RegionRows, step: Step) -> RegionRows:
        if left.maybe is not None or right.maybe is not None:
            raise not_checkable(self._sink, "it has a union after an outer join")
        ordered = left.ordered_by == right.ordered_by == ()
        frame = attempt(left.frame, step, lambda: put_beside(left.frame, right.frame, step))
        return RegionRows(frame=frame, ordered_by=() if ordered else None)

    def _stepped(self, due: RegionRows, step: Step) -> RegionRows:
        maybe = None if due.maybe is None else frames.apply(due.maybe, step)
        key = due.ordered_by
        if key and set(key) != unchanged(key, [step]):
            key = None
        return replace(due, frame=self.recomputable(due.frame, step), maybe=maybe, ordered_by=key)

    def _begin(self, source: SourceNode) -> RegionRows:
        topic = source.topic
        if source.is_hop and topic.topic in self._hops:
            writer = self._hops[topic.topic]
            if isinstance(writer.node, Step) and writer.node.operation in _KEYED:
                raise not_checkable(self._sink, f"it has steps after its {_KEYED[writer.node.operation]}")
            due = self.of(writer)
            rows = due.frame.data.where(frames.is_good())
            return replace(due, frame=replace(due.frame, data=rows))
        if topic.topic not in self.topics:
            self.topics.append(topic.topic)
            self.raw.append(self._given.read(source).persist())  # a join reads each side several times
        number = self.topics.index(topic.topic)
        frame = parse_records(self.raw[number], parsing(topic, self._session), timed=True)
        return RegionRows(frame=number_source(replace(frame, is_run=not self._given.judges), number))
