"""Judges an application: compares the outputs that its declaration gives, recomputed, with the published ones.

`due.py` computes the rows that a live region must have published. `falkirk.checker` recomputes a keyed step of them,
and compares; it shares nothing with the mechanism that it judges.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DecimalType,
    DoubleType,
    FloatType,
)

from falkirk.checker import (
    Count,
    Guarantee,
    InputRow,
    LookupModel,
    OutputRow,
    PlaceRead,
    RowPlace,
    Space,
    TopicRecord,
    Verdict,
    bounds_now,
    check_keyed,
    check_stateless,
    content_of,
    decode_json,
    group_key,
    moved,
    outputs_of,
    read_topic,
    read_typed,
    refuse_unseen,
    types_of,
)
from falkirk.checker.content import content
from falkirk.checker.topics import OffsetBounds
from falkirk.declare.application import Application
from falkirk.declare.nodes import NEWEST_ROW, SourceNode, Step
from falkirk.declare.parts import DeclaredSink
from falkirk.declare.policy import Delivery
from falkirk.errors import LogError
from falkirk.errors.conditions.checker import ROWS_CHANGED
from falkirk.kafka_client.connection import Connection
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.region import Region
from falkirk.runtime.spark.rows import JSON_OPTIONS, NOT_WRITTEN, TOO_LARGE
from falkirk.spark_setup.spark import kafka_options
from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.sources import reads
from falkirk.user_tools.commands.due import (
    AGGREGATIONS,
    Given,
    RegionEvaluation,
    keeps_order,
    not_checkable,
    own_session,
)
from falkirk.user_tools.commands.due_timed import RegionRows
from falkirk.user_tools.commands.invalid_results import (
    InvalidRanges,
    InvalidResults,
    ValidRecords,
    merged,
    none_invalid,
)
from falkirk.user_tools.commands.judge_models import aggregate_model, grouped, refuse_unordered
from falkirk.user_tools.commands.judge_places import unread_values

#: The parts of a dead letter that are compared.
_LETTER = ("reason", "topic", "partition", "offset")
_Types = Mapping[str, Callable[[object], object]]

#: In place of a home's identity, if there is none: no topic has such a name.
NO_HOME = "verify"
#: The guarantee that the checker must find at least, for each promise.
PROMISES = {
    Delivery.EXACTLY_ONCE: Guarantee.EXACTLY_ONCE,
    Delivery.REPEATED: Guarantee.REPEATED_DELIVERY,
    Delivery.AT_MOST_ONCE: Guarantee.AT_MOST_ONCE,
    Delivery.AT_LEAST_ONCE: Guarantee.AT_LEAST_ONCE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVerdict:
    """The verdict on a sink of a live region.

    Args: letters: on the dead letters; None: there are none, rightly. invalid, invalid_letters: results and dead
        letters that a rollback made invalid, which are not judged; None: there are none.
    """

    results: Verdict
    letters: Verdict | None
    invalid: InvalidResults | None = None
    invalid_letters: InvalidResults | None = None

    def satisfies(self, asked: Guarantee) -> bool:
        """Return whether both kept a promise."""
        return self.results.satisfies(asked) and (self.letters is None or self.letters.satisfies(asked))


class LiveJudge:
    """Judges the sinks of live regions of one application, by their topics and those of its sources.

    Rows are streamed from Spark and from topics, and divided by key within `space`.

    Args: invalid: returns the records of a topic that a rollback made invalid. plan: the application's; None: make one.
    """

    def __init__(
        self, app: Application, connection: Connection, session: SparkSession, space: Space | None = None,
        *, invalid: InvalidRanges = none_invalid, plan: Plan | None = None,
    ) -> None:  # fmt: skip
        self._app, self._connection, self._space, self._invalid = app, connection, space, invalid
        self._session = own_session(session)
        self._plan = plan_application(app, self._session, NO_HOME) if plan is None else plan
        self._hops = {region.hop.topic: region for region in self._plan.regions if region.hop is not None}

    def judge_sink(self, sink: DeclaredSink) -> LiveVerdict:
        """Return the checker's verdict on one sink. Call it when no record is in flight.

        Raises: DefinitionError: `NOT_CHECKABLE`: the declaration can't be recomputed. LogError: `TOPIC_UNSEEN`: one of
            the topics has, or had, records that can't be read. `ROWS_CHANGED`: one of them was written in the meantime.
        """
        regions = self._path(sink)
        config = self._connection.client_options()
        sources = [each.topic.topic for region in regions for each in region.sources if not each.is_hop]
        bounds = {topic: bounds_now(config, topic) for topic in (*sources, sink.topic.topic)}
        partitions = {topic: len(found) for topic, found in bounds.items()}
        bounds |= self._bounds_of_letters(regions)
        given = Given(of=sink, hops=self._hops, read=partial(self._records, sink), partitions=partitions)
        with closing(RegionEvaluation(given, self._session)) as rows:
            return self._judge(sink, regions, rows, bounds)

    def _records(self, sink: DeclaredSink, source: SourceNode) -> DataFrame:
        """Return all records of a source. Raises: DefinitionError: `NOT_CHECKABLE`."""
        topic = source.topic
        if topic.starting != "earliest":
            reason = f"its source was read from {topic.starting}, an offset that is not known"
            raise not_checkable(sink, reason)
        client = kafka_options(self._session, self._connection)
        return reads.spark_records(self._session, client, topic.topic, headers=topic.reads_headers)

    def _judge(
        self, sink: DeclaredSink, regions: Sequence[Region], rows: RegionEvaluation, bounds: Mapping[str, OffsetBounds]
    ) -> LiveVerdict:
        config = self._connection.client_options()
        due = [rows.of(region) for region in regions]
        valid = ValidRecords(self._invalid(sink.topic.topic))
        results = self._results(regions[-1], due[-1], rows, sink, valid)
        counts = {topic: raw.count() for topic, raw in zip(rows.topics, rows.raw, strict=True)}
        inputs = sum(counts.values())
        counts[sink.topic.topic] = results.counts.observed_outputs + (valid.found.count if valid.found else 0)
        published = {region.dead_letter_topic: self._read(region.dead_letter_topic, bounds) for region in regions}
        counts |= {topic: len(found) for topic, found in published.items() if topic in bounds}
        valid_letters = {topic: ValidRecords(self._invalid(topic)) for topic in published}
        letters = self._letters(
            due, rows.topics, chain.from_iterable(valid_letters[t].of(found) for t, found in published.items())
        )
        for topic, count in counts.items():
            changed = moved(config, topic, bounds[topic])
            if changed is not None:
                raise ROWS_CHANGED.error(changed=changed)
            refuse_unseen(config, topic, bounds[topic], count)
        read = tuple(PlaceRead(where=f"kafka:{t}", logs=len(bounds[t]), rows=n) for t, n in counts.items())
        return LiveVerdict(
            results=replace(results, counts=replace(results.counts, inputs=inputs), read=read), letters=letters,
            invalid=valid.found, invalid_letters=merged([each.found for each in valid_letters.values()]),
        )  # fmt: skip

    def _path(self, sink: DeclaredSink) -> list[Region]:
        """Return the regions from the sources to a sink, without those that only copy a log.

        Raises: DefinitionError: `NOT_CHECKABLE`.
        """
        last = next((region for region in self._plan.regions if region.name == sink.name and not region.hop), None)
        if last is None:
            raise not_checkable(sink, f"{sink.reads!r} runs as a batch")
        if (reason := unread_values(sink.topic)) is not None:
            raise not_checkable(sink, reason)
        known = {region.name: region for region in self._plan.regions}
        found = [known[unit.name] for unit in self._plan.path_to(last)]
        if any(source.name in self._app.pushed for region in found for source in region.sources):
            raise not_checkable(sink, "its source takes requests, which are deleted after a while")
        return [each for each in found if not (isinstance(each.node, SourceNode) and each.node.is_hop)]

    def _results(
        self, region: Region, due: RegionRows, rows: RegionEvaluation, sink: DeclaredSink, valid: ValidRecords
    ) -> Verdict:
        node, good = region.node, replace(due.frame, data=due.frame.data.where(frames.is_good()))
        config = self._connection.client_options()
        compared = _Compared(sink=sink, sources=rows.topics, config=config, space=self._space, valid=valid)
        if isinstance(node, Step) and node.operation == NEWEST_ROW:
            return compared.looked_up(good, node)
        if isinstance(node, Step) and node.operation in AGGREGATIONS:
            if due.ordered_by != () and not keeps_order(region):
                raise not_checkable(sink, "it groups the results of a step with event time")
            rows.recomputable(good, node)
            return compared.keyed(good, node)
        return compared.rows(good, due)

    def _bounds_of_letters(self, regions: Sequence[Region]) -> dict[str, OffsetBounds]:
        """Return the bounds of the dead-letter topics that exist."""
        found: dict[str, OffsetBounds] = {}
        config = self._connection.client_options()
        for topic in (region.dead_letter_topic for region in regions):
            try:
                found[topic] = bounds_now(config, topic)
            except LogError as error:
                if error.condition != "TOPIC_MISSING":
                    raise
        return found

    def _read(self, topic: str, bounds: Mapping[str, OffsetBounds]) -> list[TopicRecord]:
        return [*read_topic(self._connection.client_options(), topic)] if topic in bounds else []

    def _letters(
        self, due: Sequence[RegionRows], topics: Sequence[str], published: Iterable[TopicRecord]
    ) -> Verdict | None:
        """Return the verdict on the dead letters of regions: why, and of which record."""
        wanted: list[InputRow] = []
        seen = Counter[tuple[str, int, int]]()
        for each in due:
            bad = each.frame.data.where(~frames.is_good())
            stamp = [F.col(f"{STAMP}.{name}") for name in ("source", "partition", "offset")]
            for row in bad.select(F.col(f"{BAD}.reason"), *stamp).toLocalIterator():
                place = (topics[row["source"]], row["partition"], row["offset"])
                values = dict(zip(_LETTER, (row["reason"], *place), strict=True))
                wanted.append(InputRow(key=None, place=RowPlace(*place, seen[place]), row=values))
                seen[place] += 1
        found = [*filter(None, map(_letter, published))]
        return check_stateless(wanted, found, space=self._space) if wanted or found else None


def _letter(record: TopicRecord) -> OutputRow | None:
    """Return a dead letter. That of a result that a sink refuses is none of an input."""
    letter = decode_json(record.value)
    if str(letter.get("reason")).startswith((TOO_LARGE, NOT_WRITTEN)):
        return None
    return OutputRow(key=None, place=record.place, values={name: letter.get(name) for name in _LETTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A sink's topic, compared with due rows.

    Args: sources: the topics by their numbers in stamps. valid: omits the records that a rollback made invalid.
    """

    sink: DeclaredSink
    sources: Sequence[str]
    config: Mapping[str, Any]
    space: Space | None
    valid: ValidRecords

    def rows(self, good: Frame, due: RegionRows) -> Verdict:
        """Return the verdict on rows that are due as they are."""
        key = self._ordered(due, good.columns)
        verdict = self._rows(good, due.maybe, key)
        if key and verdict.guarantee is Guarantee.UNDECIDED:  # the order of many equal rows has too many explanations
            verdict = self._rows(good, due.maybe, ())
        return verdict

    def _ordered(self, due: RegionRows, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of a key whose results are in one partition and in order, or none.

        The key of a step with event time orders them, and the key of the sink decides the partition.
        """
        if due.ordered_by is None:
            return ()
        key = tuple(dict.fromkeys((*due.ordered_by, *self.sink.topic.keys)))
        return key if set(key) <= set(columns) else ()

    def _rows(self, good: Frame, maybe: Frame | None, key: tuple[str, ...]) -> Verdict:
        types = types_of(_types(good.data.select(*_named(good.columns))))
        inputs = self._inputs(good, good.columns, key, types)
        if maybe is not None:
            inputs = self._with_published(inputs, list(self._inputs(maybe, good.columns, key, types)), types)
        return check_stateless(inputs, self._outputs(key, types), space=self.space)

    def _with_published(self, inputs: Iterable[InputRow], maybe: list[InputRow], types: _Types) -> Iterator[InputRow]:
        """Yield rows that are due, and those of others that are published."""
        spare = Counter(content(row.row) for row in maybe)
        published = Counter(
            of for output in (self._outputs((), types) if maybe else ()) if (of := content(output.values)) in spare
        )
        for row in inputs:
            if maybe and (of := content(row.row)) in published:
                published[of] -= 1
            yield row
        for row in maybe:
            if published[content(row.row)] > 0:
                published[content(row.row)] -= 1
                yield row

    def keyed(self, good: Frame, step: Step) -> Verdict:
        """Return the verdict on the results of a keyed step. Args: good: the rows before it."""
        keys, aggregates = grouped(step)
        if tuple(self.sink.topic.keys) != keys:
            raise not_checkable(self.sink, f"its key is not that of groupBy({', '.join(keys)})")
        columns, model = aggregate_model(good.data, keys, aggregates, self.sink)
        read = good.data.select(*keys, *columns)
        kinds = _types(read)
        refuse_unordered(read, model, self.sink)
        aggregated = {name: each for name, each in model.aggregates.items() if not isinstance(each, Count)}
        named = {name: each.column for name, each in aggregated.items() if each.column is not None}
        named |= dict(zip(keys, keys, strict=True))
        results = types_of({name: kinds[column] for name, column in named.items() if column in kinds})
        inputs = self._inputs(good, [*keys, *columns], keys, types_of(kinds))
        return check_keyed(inputs, self._outputs(keys, results), model, space=self.space)

    def looked_up(self, good: Frame, step: Step) -> Verdict:
        """Return the verdict on a lookup in a stream. Args: good: the records, and the rows of the table."""
        keys, name = step.arguments
        if set(self.sink.topic.keys) != set(keys):
            raise not_checkable(self.sink, f"its key is not that of the lookup, {', '.join(keys)}")
        types = types_of(_types(good.own))
        model = LookupModel([each for each in good.columns if each != name], name)
        inputs = self._inputs(good, good.columns, keys, types)
        return check_keyed(inputs, self._outputs(keys, types), model, space=self.space)

    def _outputs(self, keys: tuple[str, ...], types: _Types) -> Iterator[OutputRow]:
        return outputs_of(
            self.valid.of(read_topic(self.config, self.sink.topic.topic)),
            decode=lambda value: read_typed(value, types),
            key=lambda record, values: _key(values, keys),
        )  # fmt: skip

    def _inputs(self, frame: Frame, columns: Sequence[Any], keys: tuple[str, ...], types: _Types) -> Iterator[InputRow]:
        counted: dict[tuple[str, int, int], int] = {}
        data = frame.data.select(F.to_json(F.struct(*_named(columns)), JSON_OPTIONS).alias("value"), STAMP)
        for row in data.orderBy(STAMP).toLocalIterator():
            stamp: Row = row[STAMP]
            record = (self.sources[stamp["source"]], stamp["partition"], stamp["offset"])
            sub = counted.get(record, 0)
            counted = {record: sub + 1}  # rows arrive in stamp order, so only the present record is counted
            values = read_typed(row["value"].encode(), types)
            yield InputRow(key=_key(values, keys), place=RowPlace(*record, sub), row=values)


def _named(columns: Sequence[Any]) -> list[Any]:
    return [F.col(f"`{each}`") if isinstance(each, str) else each for each in columns]


def _types(data: DataFrame) -> dict[str, str]:
    """Return the checker's types for the columns whose type is not visible in JSON."""
    named = {DecimalType: "decimal", DoubleType: "double", FloatType: "double"}
    return {each.name: named[type(each.dataType)] for each in data.schema if type(each.dataType) in named}


def _key(values: Mapping[str, object], keys: tuple[str, ...]) -> tuple[Hashable, ...] | None:
    return tuple(content_of(group_key(values.get(key))) for key in keys) if keys else None
