"""Steps: computes the results of a live region on records in memory, with the user's steps on Spark's DataFrames.

Rows are parsed, stamped, encoded and signed by the code of a real run. Only a keyed step differs: see `running.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from falkirk.declare.nodes import SourceNode, Step
from falkirk.kafka_client.header import split_header
from falkirk.plan.region import Region
from falkirk.runtime.spark import rows
from falkirk.runtime.spark.rows import IncarnationConstants, OutputTopic
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.batch.running import RUNNING, updated
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.differential.expressions import Unsuitable
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.live.unions import after, number_source
from falkirk.steps.sources.topics import parse_records, parsing
from falkirk.theory.ids import Incarnation, Offset
from falkirk.user_tools.testkit.place import RECORD_BYTES_MAX, kafka_rows
from falkirk.user_tools.testkit.quick import QuickSteps
from falkirk.user_tools.testkit.world import MemoryRecord

Records = Sequence[tuple[Offset, MemoryRecord]]
"""Records of one source, with their offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionResult:
    """A result of a live region. Args: is_dead: a dead letter. stamp: the numbers of its stamp."""

    is_dead: bool
    stamp: tuple[int, ...]
    key: bytes | None
    value: bytes | None


class LiveSteps:
    """The steps of one live region.

    Attributes: spark_reason: why Spark computes the results; empty: this process does, as far as values allow.
    """

    def __init__(self, region: Region, session: SparkSession, identity: str) -> None:
        self._region, self._session, self._identity = region, session, identity
        self._quick: QuickSteps | None = None
        self.spark_reason = ""
        try:
            self._quick = QuickSteps(region, session)
        except Unsuitable as reason:
            self.spark_reason = str(reason)

    def compute(
        self, records: Records, state: Any, incarnation: Incarnation, others: Sequence[Records] = ()
    ) -> tuple[list[RegionResult], Any]:
        """Return the results of records, in the order of their stamps, and the state after them.

        Args: records: of the first source. state: before the records, as a former call returned it; None: the initial
            state. others: the records of the other sources.
        """
        if self._quick is not None and not isinstance(state, tuple):
            try:
                found, after = self._quick.compute(records, state)
                return [
                    RegionResult(is_dead=False, stamp=(0, 0, *stamp), key=k, value=v) for stamp, k, v in found
                ], after
            except Unsuitable:
                if state is not None and self._quick.keyed is not None and state.history:
                    _, state = self._by_spark(state.history, None, incarnation)
                else:
                    state = None
        return self._by_spark(records, state, incarnation, others)

    def _by_spark(
        self, records: Records, state: Any, incarnation: Incarnation, others: Sequence[Records] = ()
    ) -> tuple[list[RegionResult], Any]:
        given, before, states = (records, *others), iter(state or ()), list[DataFrame]()

        def begin(source: SourceNode) -> Frame:
            number = self._region.sources.index(source)
            raw = kafka_rows(self._session, source.topic.log, given[number])
            return replace(number_source(parse_records(raw, self._parsings[number]), number), is_run=True)

        def apply(frame: Frame, step: Step) -> Frame:
            if step.operation not in RUNNING:
                return frames.apply(frame, step)
            state = next(before, None)
            frame, left = updated(frame, step, lambda schema: empty(self._session, schema) if state is None else state)
            states.append(left)
            return frame

        frame = after(self._region.node, begin, apply)
        ordered = Frame(
            data=frame.data.coalesce(1).sortWithinPartitions(STAMP), depth=frame.depth, keyed=frame.keyed,
            grouped_by=frame.grouped_by, several=frame.several,
        )  # fmt: skip
        release = release_of(self._region, self._identity, incarnation)
        found = rows.rows(ordered, self._region, release).collect()
        return [read_result(row, release) for row in found], tuple(states) or None

    @cached_property
    def _parsings(self) -> list[Any]:
        return [parsing(source.topic, self._session) for source in self._region.sources]


def release_of(region: Region, identity: str, incarnation: Incarnation) -> IncarnationConstants:
    """Return the constants with which a region's results become records. Its output has one partition."""
    outputs = (region.output.log, region.dead_letter_topic)
    main, dead = (OutputTopic(name=n, partitions=1, size_limit_bytes=RECORD_BYTES_MAX) for n in outputs)
    return IncarnationConstants(
        application=identity, incarnation=incarnation, source_partitions=(1,) * len(region.sources),
        state_partitions=1, main=main, dead=dead, barrier=None, main_key=b"test", dead_key=b"test",
    )  # fmt: skip


def read_result(row: Any, release: IncarnationConstants) -> RegionResult:
    """Return the result in a row that `rows.rows` has made."""
    _, _, stamp, _, _ = split_header(bytes(row["header"]))
    key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
    return RegionResult(is_dead=row["topic"] == release.dead.name, stamp=stamp, key=key, value=value)
