"""Due: the rows and the bad records that live regions must have published, from all records of their sources.

Spark reads each topic as a batch and applies the recorded steps of the plan's regions. A log between two regions is not
read: its rows are those of the region that writes it.
"""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from falkirk.declare.nodes import NEWEST_ROW, UNIONS, Node, SourceNode, Step, steps_of
from falkirk.declare.parts import DeclaredSink
from falkirk.declare.windows import split_windows, unchanged
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.commands import NOT_CHECKABLE
from falkirk.kafka_client.connection import Connection
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.region import Region
from falkirk.spark_setup.spark import kafka_options
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame, attempt
from falkirk.steps.live.unions import number_source, put_beside
from falkirk.steps.sources import reads
from falkirk.steps.sources.topics import parse_records, parsing
from falkirk.steps.static_analysis.determinism import operations, undetermined
from falkirk.steps.static_analysis.functions import Nature, entry_of
from falkirk.steps.static_analysis.typed import of_types
from falkirk.user_tools.commands import due_timed
from falkirk.user_tools.commands.due_timed import RegionRows

#: Steps with a group's state, each result of which depends on the one before it.
AGGREGATIONS = ("agg", "count")
#: Spark's relation that gives a row for each sliding window. `due_timed` computes windows without it.
_OF_WINDOWS = {"Expand"}


def not_checkable(sink: DeclaredSink, reason: str) -> DefinitionError:
    """Return the error `NOT_CHECKABLE`."""
    return NOT_CHECKABLE.error(where=sink.where, sink=sink.name, reason=reason)


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


class RegionEvaluation:
    """Computes what the regions on the path to one sink must have published.

    Attributes: topics: the topics of users that it has read, each at the place that is its number in stamps. raw: their
        records.
    Args: hops: the regions by the internal topics that they write. partitions: the numbers of partitions of topics.
    """

    def __init__(
        self, sink: DeclaredSink, hops: Mapping[str, Region], connection: Connection, session: SparkSession,
        partitions: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._sink, self._hops, self._connection, self._session = sink, hops, connection, session
        self._partitions = partitions
        self._known: dict[str, RegionRows] = {}
        self.topics: list[str] = []
        self.raw: list[DataFrame] = []

    def of(self, region: Region) -> RegionRows:
        """Return the rows before the keyed step of a region, or all if it has none, and its bad records.

        Raises: DefinitionError: `NOT_CHECKABLE`.
        """
        if region.name not in self._known:
            node = region.node
            keyed = (*AGGREGATIONS, NEWEST_ROW)
            before = node.parent if isinstance(node, Step) and node.operation in keyed else node
            self._known[region.name] = self._after(before, region)
        return self._known[region.name]

    def close(self) -> None:
        """Free the records."""
        for records in self.raw:
            records.unpersist()

    def recomputable(self, frame: Frame, step: Step) -> Frame:
        """Return the frame after a step that is deterministic. Raises: DefinitionError: `NOT_CHECKABLE`."""
        after = frames.apply(frame, step)
        unknown = set(undetermined(operations(frame.data), operations(after.data)))
        if step.operation == "windows":
            unknown -= _OF_WINDOWS
        if unknown:
            raise not_checkable(self._sink, f"{', '.join(sorted(unknown))} ({step.where}) may differ each time")
        return after

    def _after(self, node: Node, region: Region, source: SourceNode | None = None) -> RegionRows:
        """Return the rows after a node. Args: source: at which the steps of the right side of a join begin."""
        if not isinstance(node, Step):
            source = node if isinstance(node, SourceNode) else source
            assert source is not None, "the steps of a region begin at its sources"
            return self._begin(source)
        if node.operation in ("map_rows", "stateful"):
            raise not_checkable(self._sink, "it calls Python")
        if node.operation in AGGREGATIONS:
            raise not_checkable(self._sink, "it has steps after its `groupBy`")
        if node.operation == NEWEST_ROW:
            raise not_checkable(self._sink, "it has steps after its lookup")
        due = self._after(node.parent, region, source)
        match node.operation:
            case "withWatermark":
                return due_timed.timed(due, node)
            case "dropDuplicates":
                return due_timed.deduplicated(due, node)
            case "windows":
                return due_timed.windows(due, node, self._planned(due.frame, node))
            case "timedJoin":
                number = sum(step.operation == node.operation for step in steps_of(node.parent))
                right = self._after(node.arguments[0].node, region, region.joined[number])
                first, second = (self._partitions[region.sources[n].topic.topic] for n in (0, number + 1))
                return due_timed.joined(due, right, node, (first, second))
        if node.operation in UNIONS:
            return self._united(due, self._after(node.arguments[0].node, region), node)
        return self._stepped(due, node)

    def _planned(self, frame: Frame, step: Step) -> Frame:
        """Return the frame after windows, by Spark's analysis."""
        planned, ([window], _) = self.recomputable(frame, step), split_windows(step.arguments[0])
        rounded = of_types(planned.data, operations(planned.data))
        sums = sorted({name for name in rounded if entry_of(name).nature is Nature.FLOATING})
        if sums and not window.slide:
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
        if source.is_hop:
            writer = self._hops[topic.topic]
            if isinstance(writer.node, Step) and writer.node.operation in (*AGGREGATIONS, NEWEST_ROW):
                step = "lookup" if writer.node.operation == NEWEST_ROW else "`groupBy`"
                raise not_checkable(self._sink, f"it has steps after its {step}")
            due = self.of(writer)
            rows = due.frame.data.where(frames.is_good())
            return replace(due, frame=replace(due.frame, data=rows))
        if topic.starting != "earliest":
            reason = f"its source was read from {topic.starting}, an offset that is not known"
            raise not_checkable(self._sink, reason)
        if topic.topic not in self.topics:
            client = kafka_options(self._session, self._connection)
            self.topics.append(topic.topic)
            records = reads.spark_records(self._session, client, topic.topic, headers=topic.reads_headers)
            self.raw.append(records.persist())  # a join reads each side several times
        number = self.topics.index(topic.topic)
        return RegionRows(
            frame=number_source(parse_records(self.raw[number], parsing(topic, self._session), timed=True), number)
        )
