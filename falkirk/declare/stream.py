"""Stream: a small counterpart of a DataFrame that records its steps, so that only running it needs Spark.

The methods have PySpark's names. Each call returns a new `Stream` with one more `Step`, which knows the user's line.
The planner replays the steps on a real DataFrame that carries stamps (falkirk/steps/live/stamped.py). It can divide a
recorded stream into regions, but not a DataFrame.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self

from falkirk.declare.cut import AHEAD_S
from falkirk.declare.endpoints import Kafka
from falkirk.declare.grouped import GroupedStream
from falkirk.declare.joins import are_names, invalid, join_of
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import BESIDE, CLOCKED, LOOKUP, NEWEST_ROW, Node, SourceNode, Step, joined_by
from falkirk.declare.policy import Duration, duration_s
from falkirk.declare.states import order_of, timed_options, watermark_of
from falkirk.declare.unknown_methods import refuse_method
from falkirk.declare.view import View, lookup_keys
from falkirk.declare.watermark import watermark
from falkirk.errors.conditions.declare import (
    KEY_MISSING_DUPLICATES,
    NOT_A_STREAM,
    SCHEMA_MISSING_JSON,
)
from falkirk.errors.conditions.lookups import LOOKUP_INVALID
from falkirk.errors.location import caller

if TYPE_CHECKING:
    from pyspark.sql import Column, Row


#: How far ahead of the clock an event time may be by default.
AHEAD = timedelta(seconds=AHEAD_S)


class Stream:
    """A stream of records with stamps; it records transformations with PySpark's names.

    Streams are immutable: every method returns a new stream. Nothing runs until the stream is written.
    """

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def node(self) -> Node:
        """The recorded steps, newest first."""
        return self._node

    def __repr__(self) -> str:
        root, steps = self._node, []
        while isinstance(root, Step):
            steps.append(f".{root.operation}(…)")
            root = root.parent
        return f"Stream({root.name!r}){''.join(reversed(steps))}"

    def _like(self, node: "Node") -> Self:
        return type(self)(node)

    def _then(self, operation: str, *arguments: Any) -> Self:
        return self._like(Step(parent=self._node, operation=operation, arguments=arguments, where=caller()))

    def select(self, *columns: "Column | str") -> Self:
        """Keep these columns or expressions, as ``DataFrame.select``."""
        return self._then("select", *columns)

    def selectExpr(self, *expressions: str) -> Self:
        """Keep these SQL expressions, as ``DataFrame.selectExpr``."""
        return self._then("selectExpr", *expressions)

    def where(self, condition: "Column | str") -> Self:
        """Keep the records for which `condition` holds, as ``DataFrame.where``."""
        return self._then("where", condition)

    filter = where

    def withColumn(self, name: str, column: "Column") -> Self:
        """Add or replace a column, as ``DataFrame.withColumn``."""
        return self._then("withColumns", {name: column})

    def withColumns(self, columns: "Mapping[str, Column]") -> Self:
        """Add or replace columns, as ``DataFrame.withColumns``."""
        return self._then("withColumns", dict(columns))

    def withColumnRenamed(self, existing: str, new: str) -> Self:
        """Rename a column, as ``DataFrame.withColumnRenamed``; here the column must exist."""
        return self._then("withColumnRenamed", existing, new)

    def drop(self, *names: str) -> Self:
        """Drop columns by name, as ``DataFrame.drop``; here they must exist."""
        return self._then("drop", *names)

    def explode(self, column: "Column | str", name: str) -> Self:
        """Make one record per element of an array column, in a new column `name`; other columns stay.

        The element's place in the array becomes the record's sub-index. Therefore this is a method rather than the
        expression ``F.explode``. An empty or null array gives no record.
        """
        return self._then("explode", column, name)

    def map_rows(
        self, function: "Callable[[Row], Any]", *, returns: str, poison: str = "dead-letter",
        timeout: Duration = "1 minute",
    ) -> Self:  # fmt: skip
        """Apply a Python function to each record, as `falkirk.map_rows`.

        The processor runs live if the function is declared with `falkirk.deterministic`.

        Args: timeout: how long a live call may take. Then another process gets the record.
        Raises: DefinitionError: `DURATION_MALFORMED`.
        """
        duration_s(timeout)
        return self._then("map_rows", function, {"returns": returns, "poison": poison, "timeout": timeout})

    def stateful(
        self,
        function: "Callable[[Row, Row | None], Any]",
        *,
        key: str | Sequence[str],
        state: str,
        returns: str,
        order: str | None = None,
        expires: Duration | None = None,
        on_timer: "Callable[[Row, datetime, Row], Any] | None" = None,
        include_key: bool = False,
        poison: str = "dead-letter",
        timeout: Duration = "1 minute",
    ) -> Self:
        """Apply a Python function that keeps a state per key, as `falkirk.stateful`.

        The function gets each key's records in the order of their stamps. It runs live as that of `map_rows`.

        Args:
            order: the column of `withWatermark`. The function gets each key's records by these times, then by their
                places in the source. A record waits until the watermark of each partition has passed it. So records
                of a key may come from several partitions, and no internal topic has to fix their order.
            expires: delete the state of a key when the watermark has passed the key's newest record by this.
            on_timer: with it, both functions may return ``(results, state, time)``. It is called as
                ``on_timer(key, time, state)`` when the watermark, or the clock of `withClock`, has reached this time.
            include_key: each result begins with the columns of the key, which Falkirk adds, and `returns` has the
                others. So a `groupBy` or a `stateful` of the same key can follow without an internal topic.
            timeout: see `map_rows`.

        `order`, `expires` and `on_timer` need a `withWatermark` before the step. With it, late records become dead
        letters. Without event time, `on_timer` needs a `withClock`.

        Raises: DefinitionError: `DURATION_MALFORMED`, `WATERMARK_MISSING`, `ORDER_UNSUITABLE`.
        """
        where = caller()
        duration_s(timeout)
        options: dict[str, Any] = {"key": key, "state": state, "returns": returns, "poison": poison, "timeout": timeout}
        options |= {"include_key": True} if include_key else {}
        timed = timed_options(self._node, expires, on_timer, where)
        options |= timed if order is None else {"order": order_of(self._node, order, timed, where)}
        return self._like(Step(parent=self._node, operation="stateful", arguments=(function, options), where=where))

    def alias(self, name: str) -> Self:
        """Name the stream for the condition of a join, as ``DataFrame.alias``. Its first name is that of its source."""
        return self._then("alias", name)

    def join(
        self, other: "Stream", on: "Column | str | Sequence[Any]", how: str = "inner", *, time: str | None = None,
        within: Duration | None = None,
    ) -> Self:  # fmt: skip
        """Join with another stream that the processor reads, as ``DataFrame.join``.

        If both streams have a `withWatermark`, the join runs live. Without, it is `falkirk.join`, in micro-batches.
        A column of `other` that both have becomes ``right_name``. The time of a result is that of its left record, so
        another join can follow an inner or left one. If the key is the same, both run live, as one step.

        Args: on: the names of columns, or a condition such as ``F.expr("shown.id = clicks.id AND clicks.at BETWEEN
            shown.at AND shown.at + INTERVAL 10 MINUTES")``. how: "inner", "left", "right" or "full". within: the times
            of a pair differ by at most this. time: their column, for a join in micro-batches.
        Raises: DefinitionError: `NOT_A_STREAM`, `JOIN_INVALID`, `DURATION_MALFORMED`.
        """
        where = caller()
        if not isinstance(other, Stream):
            raise NOT_A_STREAM.error(where=where, operation="join", name=type(other).__name__)
        both = (self._node, other.node)
        timed = [joined_by(node, through_joins=False) for node in both]
        if timed == [None, None] and are_names(on) and how == "inner":
            return self._then("join", other, on, {"time": time, "within": within})
        if time is not None:
            raise invalid(where, "time= is the column of withWatermark()")
        made = join_of(both, on, how, within, where)
        return self._like(Step(parent=self._node, operation="timedJoin", arguments=(other, made), where=where))

    def join_asof(
        self, other: "Stream", on: str | Sequence[str], how: str = "inner", *, tolerance: Duration | None = None
    ) -> Self:
        """Join each record with the newest record of `other` that has the same key and is not later.

        `other` is a table that changes: each of its records is a version of its key. Both streams need a
        `withWatermark`, and the time of a record is that column. A result leaves when the watermark of each partition
        of `other` has passed the record, so it is the same in every replay. A column of `other` that both have becomes
        ``right_name``.

        Args: on: the names of the columns of the key. how: "inner", or "left": a record without a version is a result,
            too. tolerance: the version is at most this much older than the record, and an older one is deleted.
        Raises: DefinitionError: `NOT_A_STREAM`, `JOIN_INVALID`, `DURATION_MALFORMED`.
        Source: Flink's event-time temporal join; `join_asof` of Polars, with ``by`` as `on`.
        """
        where = caller()
        if not isinstance(other, Stream):
            raise NOT_A_STREAM.error(where=where, operation="join_asof", name=type(other).__name__)
        made = join_of((self._node, other.node), on, how, tolerance, where, as_of=True)
        return self._like(Step(parent=self._node, operation="timedJoin", arguments=(other, made), where=where))

    def lookup(
        self,
        view: "View | Newest",
        on: "str | Sequence[str] | Mapping[str, Column | str]",
        name: str,
        *,
        epoch: str | None = None,
    ) -> Self:
        """Add a column with the rows of a view that have the record's key: an array of structs, in no fixed order.

        `view` is a parameter marked `View`. A record reads the newest epoch that is complete when it arrives, and all
        its lookups in one processor read the same epoch of a view. Live, the rows are in the memory of the JVM. Another
        computation of the record may read another epoch: `falkirk plan` says whether results wait because of that.

        Args:
            view: with `Newest`, the newest rows of a stream. The new column is then a struct, or null if there is no
                row. A hop records the order of records and rows, so each computation finds the same row. In
                micro-batches, a record finds the rows of its epoch, too.
            on: the columns of the view that are the key, and that the record has as well; or by name, the column of the
                record, or an expression. If a key of one column is an ARRAY, the result has the rows for each element.
            name: of the new column. epoch: the name of another new column, for the number of the epoch.
        Raises: DefinitionError: `LOOKUP_INVALID`.
        Source: lookup joins of Flink's Table API, where a table is looked up when the record arrives.
        """
        where = caller()
        if not isinstance(view, View | Newest):
            reason = f"{type(view).__name__} is neither a parameter marked fk.View nor fk.Newest of a stream"
            raise LOOKUP_INVALID.error(where=where, reason=reason)
        keys = dict(on) if isinstance(on, Mapping) else {each: each for each in key_columns(on)}
        if not keys or not all(isinstance(each, str) for each in (*keys, name, *([] if epoch is None else [epoch]))):
            raise LOOKUP_INVALID.error(where=where, reason="on= needs the name of a column of the view")
        if isinstance(view, Newest):
            if not isinstance(view.stream, Stream):
                raise NOT_A_STREAM.error(where=where, operation="fk.Newest", name=type(view.stream).__name__)
            pairs = lookup_keys(keys, name, epoch, where)
            both = Step(parent=self._node, operation=BESIDE, arguments=(view.stream, pairs, name), where=where)
            ours = tuple(column for _, column in pairs)
            return self._like(Step(parent=both, operation=NEWEST_ROW, arguments=(ours, name), where=where))
        made = Step(parent=self._node, operation=LOOKUP, arguments=(view, keys, name, epoch), where=where)
        return self._like(made)

    def union(self, other: "Stream") -> Self:
        """Add the records of another stream with the same columns, in the same order, as ``DataFrame.union``.

        The columns have the names of this stream. The types must be equal.

        Raises: DefinitionError: `NOT_A_STREAM`; `UNION_INVALID`, when the application is planned.
        """
        return self._united("union", other)

    unionAll = union

    def unionByName(self, other: "Stream") -> Self:
        """Add the records of another stream with the same columns, in any order, as ``DataFrame.unionByName``.

        Raises: DefinitionError: `NOT_A_STREAM`; `UNION_INVALID`, when the application is planned.
        """
        return self._united("unionByName", other)

    def _united(self, operation: str, other: "Stream") -> Self:
        where = caller()
        if not isinstance(other, Stream):
            raise NOT_A_STREAM.error(where=where, operation=operation, name=type(other).__name__)
        return self._like(Step(parent=self._node, operation=operation, arguments=(other,), where=where))

    def withWatermark(
        self, eventTime: str, delayThreshold: Duration, *, ahead: Duration = AHEAD, idle: Duration | None = None
    ) -> Self:
        """Declare the event time of the records, as ``DataFrame.withWatermark``.

        `dropDuplicates`, windows, `join`, `join_asof`, or `stateful` with ``order=``, ``expires=`` or ``on_timer=`` has
        to follow.

        The time of a partition is the greatest time of its records so far. A record is late if it is older than the
        time of its partition, less `delayThreshold`.

        Args: eventTime: the name of a TIMESTAMP column. ahead: how far a time may be ahead of the clock. Records with
            later times, or without a time, become dead letters. idle: a partition without a record for this long holds
            time up no longer: its time becomes the least one of the other partitions. With `idle`, a processor runs
            in micro-batches. By default a partition holds time up for ever.
        Raises: DefinitionError: `WATERMARK_INVALID`, `DURATION_MALFORMED`.
        """
        return self._then("withWatermark", watermark(eventTime, delayThreshold, ahead, idle, caller()))

    def withClock(self, clock: "Stream") -> Self:
        """Let the timers of a `stateful` with ``on_timer=`` after it fire by the clock (processing time).

        They fire without new records, too. In a replay they may fire between other records, so results wait for a
        checkpoint. Only live regions have them.

        Args: clock: a source that was declared with `Clock`, which the processor reads beside the records.
        Raises: DefinitionError: `NOT_A_STREAM`; `CLOCK_UNSUITABLE`, when the application is planned.
        """
        return self._united(CLOCKED, clock)

    def dropDuplicates(self, subset: Sequence[str] = ()) -> Self:
        """Keep the first record of each key within the time of `withWatermark`.

        A key is known until the time of its partition has passed its first record by the delay. Late records become
        dead letters. This is ``DataFrame.dropDuplicatesWithinWatermark``, whose name is possible as well.

        Args: subset: the names of the columns of the key.
        Raises: DefinitionError: `WATERMARK_MISSING`, `KEY_MISSING`.
        """
        where = caller()
        if isinstance(subset, str) or not subset or not all(isinstance(name, str) for name in subset):
            raise KEY_MISSING_DUPLICATES.error(where=where, subset=subset)
        return self._like(Step(
            parent=self._node, operation="dropDuplicates",
            arguments=(tuple(subset), watermark_of(self._node, where, "dropDuplicates()")), where=where,
        ))  # fmt: skip

    dropDuplicatesWithinWatermark = dropDuplicates

    def groupBy(self, *keys: "Column | str") -> "GroupedStream[Self]":
        """Group by key, as ``DataFrame.groupBy``; then call `GroupedStream.agg`."""
        return GroupedStream(self._node, keys, caller(), self._like)

    def __getattr__(self, name: str) -> NoReturn:
        refuse_method(name, "a stream", Stream)


class Newest:
    """A stream as a table that changes: a row replaces the row before it with the same key.

    `Stream.lookup` gets it: ``orders.lookup(fk.Newest(prices), "product", "price")``. The stream may be a source or the
    results of a live processor, with further steps.

    Args: stream: one that the processor reads.
    """

    __slots__ = ("stream",)

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __repr__(self) -> str:
        return f"Newest({self.stream!r})"


def source_node(name: str, topic: Kafka) -> SourceNode:
    """Return the start of a stream, after a check that the topic can be read.

    Raises: DefinitionError: `SCHEMA_MISSING`.
    """
    if topic.format == "json" and not topic.schema:
        raise SCHEMA_MISSING_JSON.error(where=topic.where, source=name)
    return SourceNode(name=name, topic=topic)


Body = Callable[..., Any]
