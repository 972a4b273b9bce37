"""Made of: finds the records that made a result of an aggregation, by computing the steps before it again.

The steps are those of the plan, and the evaluation is that of `falkirk verify outputs` (`due.py`) and of the test kit
(`steps/batch/running.py`, `steps/batch/folding.py`). So filters, computed keys, exploded rows and the times of windows
count as they do in the query. At last the aggregate itself is computed from these records alone, and compared.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from falkirk.checker.timed import Place, WindowResult
from falkirk.declare.application import Application
from falkirk.declare.nodes import NEWEST_ROW, UNIONS, Step, is_ordered, steps_since
from falkirk.declare.watermark import ProcessingTime
from falkirk.declare.windows import window_of
from falkirk.errors import FalkirkError
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.region import Region, RegionLogs
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.batch.running import updated
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import grouping_of
from falkirk.steps.live.stamped import Frame, is_good, key_column
from falkirk.user_tools.commands.due import AGGREGATIONS, Given, RegionEvaluation, own_session
from falkirk.user_tools.commands.due_timed import PLACE, RegionRows, placed
from falkirk.user_tools.commands.made_of_inputs import NotRecomputed, RegionInputs
from falkirk.user_tools.commands.made_of_states import Folded, StateFold
from falkirk.user_tools.commands.planned import PlannedRegions
from falkirk.user_tools.commands.records import FoundRecord, RecordPlace, TopicRecords, key_texts

_KEY, _RANK, _VALUE = "__falkirk_key", "__falkirk_rank", "__falkirk_value"
#: The numbers of a stamp before its sub-indexes.
_OF_RECORD = 3
#: A sum of doubles depends on the order of its rows, so equal ones may differ by this part.
_ROUNDED = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The records that made a result.

    Args: columns, values: of the key. window: its bounds in microseconds. rows: how many rows of these records went
        into it. records: newest first. looked_at: how many records were read. deleted, skipped: how many were not,
        because they were deleted, or because of the limit. results: the aggregate of these records alone. agrees: it
        is the result; None: it can't be compared.
    """

    columns: tuple[str, ...]
    values: tuple[Any, ...]
    window: tuple[int, int] | None
    rows: int
    records: tuple[RecordPlace, ...]
    looked_at: int
    deleted: int
    skipped: int
    results: tuple[Mapping[str, Any], ...]
    agrees: bool | None
    note: str = ""


class MadeOf:
    """Computes results of one application again.

    Args: app: with the topics of its patterns. look: at most this many records of each partition are read. session:
        starts Spark, or returns one that runs.
    """

    def __init__(
        self, app: Application, place: Storage, records: TopicRecords, *, look: int, session: Callable[[], SparkSession]
    ) -> None:
        self._app, self._place, self._records, self._look, self._start = app, place, records, look, session

    def of(self, logs: RegionLogs, found: FoundRecord) -> Made:
        """Return the records that made a result of a region. Raises: NotRecomputed. LogError."""
        try:
            return self._of(self._region(logs), found)
        except SPARK_ERRORS as error:
            raise NotRecomputed(first_line(error)) from error
        except FalkirkError as error:
            raise NotRecomputed(str(error.parameters.get("reason", error))) from error

    @cached_property
    def _session(self) -> SparkSession:
        return own_session(self._start())

    @cached_property
    def _planned(self) -> PlannedRegions:
        return PlannedRegions(app=self._app, home=self._place.home, session=self._session)

    def _region(self, logs: RegionLogs) -> Region:
        found = self._planned.region(logs)
        if found is None:
            raise NotRecomputed(f"the steps of {logs.name} in this file are not those that the application has run")
        return found

    def _of(self, region: Region, found: FoundRecord) -> Made:
        if region.joined:
            raise NotRecomputed("it joins streams")
        hops = self._hops(region)
        path = [region, *hops.values()]
        for each in path:
            if each.undetermined is not None and each.undetermined.operations:
                raise NotRecomputed(f"{each.undetermined} may differ each time")
        keyed = region.node
        while isinstance(keyed, Step) and keyed.operation not in KEYED:
            if keyed.operation in UNIONS:
                raise NotRecomputed("it has a union after its last step with a state")
            keyed = keyed.parent
        assert isinstance(keyed, Step), "the caller knows that it has a state"
        if keyed.operation == NEWEST_ROW:
            raise NotRecomputed("it looks up the newest row of a stream")
        inputs = RegionInputs(
            region=region, path=path, hops=hops, result=found, records=self._records, store=self._place.home.store,
            session=self._session, look=self._look, needs_all_partitions=is_ordered(keyed),
        )  # fmt: skip
        given = Given(of=region, hops=hops, read=inputs.read, partitions={}, judges=False)
        evaluation = RegionEvaluation(given, self._session)
        try:
            return _Result(
                region=region, keyed=keyed, found=found, inputs=inputs, evaluation=evaluation, session=self._session
            ).made()
        finally:
            evaluation.close()

    def _hops(self, region: Region) -> dict[str, Region]:
        """Return the regions without a state that write a log on the path to a region, by these logs."""
        writers = {each.hop.topic: each for each in self._planned.plan.regions if each.hop is not None}
        found: dict[str, Region] = {}
        waiting = [region]
        while waiting:
            for source in waiting.pop().sources:
                writer = writers.get(source.topic.topic) if source.is_hop else None
                if writer is not None and not any(step.operation in KEYED for step in writer.steps()):
                    found[source.topic.topic] = writer
                    waiting.append(writer)
        return found


@dataclass(kw_only=True)
class _Result:
    """One result, and the evaluation of the steps before its last step with a state."""

    region: Region
    keyed: Step
    found: FoundRecord
    inputs: RegionInputs
    evaluation: RegionEvaluation
    session: SparkSession

    def made(self) -> Made:
        if self.keyed.operation == "windows":
            return self._of_window(self.evaluation.after(self.keyed, self.region))
        due = self.evaluation.after(self.keyed.parent, self.region)
        if self.keyed.operation in AGGREGATIONS:
            return self._of_aggregate(due)
        return self._of_state(due)

    @property
    def _topics(self) -> list[str]:
        return self.evaluation.topics

    @property
    def _after(self) -> tuple[Step, ...]:
        """The steps after the last one with a state."""
        return steps_since(self.keyed, self.region.node)

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def _of_aggregate(self, due: RegionRows) -> Made:
        keys = grouping_of(self.keyed.arguments)[0]
        names = frames.apply(due.frame, self.keyed).columns[: len(keys)]
        rows = self._by_key(due.frame, [key_column(key) for key in keys])
        key = self._key(rows, names)
        mine = self.inputs.before([stamp for stamp, of in rows if of == key], self._topics)
        again, _ = updated(
            self._only(due.frame, mine), self.keyed, lambda schema: empty(self.session, schema)
        )  # fmt: skip
        results = self._values(again, rank=len(mine) - 1)
        return self._made(due, names, key, mine, results)

    def _by_key(self, frame: Frame, keys: Sequence[Any]) -> list[tuple[Place, str]]:
        """Return the stamps of the good rows, each with its key as text."""
        text = F.to_json(F.struct(*[key.alias(f"k{n}") for n, key in enumerate(keys)]), JSON_OPTIONS)
        rows = frame.data.where(is_good()).withColumn(_KEY, text).select(STAMP, _KEY)
        return [(_flat(row[STAMP]), row[_KEY]) for row in rows.collect()]

    def _key(self, rows: Sequence[tuple[Place, str]], names: Sequence[str], *, is_own: bool = True) -> str:
        """Return the key of the row that caused the result. Args: is_own: the cause has the key of the result."""
        cause = self.inputs.cause(self._topics) if is_own else None
        if cause is not None:
            for stamp, key in rows:
                if stamp == cause[: len(stamp)]:
                    return key
        content = self.found.content
        if {*names} <= content.keys():
            wanted = key_texts(content, names)
            for key in dict.fromkeys(key for _, key in rows):
                values = json.loads(key)
                if key_texts(values, values) == wanted:
                    return key
        raise NotRecomputed("the record that caused it is not among those that are left and were read")

    def _only(self, frame: Frame, stamps: Sequence[Place]) -> Frame:
        """Return the rows with these stamps. Their new stamps have the order of these."""
        ranks = placed(frame, [((rank,), stamp) for rank, stamp in enumerate(stamps)], [_RANK])
        chosen = frame.data.where(is_good()).join(ranks, F.col(STAMP) == F.col(PLACE))
        names = chosen.schema[STAMP].dataType.fieldNames()[_OF_RECORD:]  # type: ignore[attr-defined]  # a struct
        place = F.lit(0).alias("source"), F.lit(0).alias("partition"), F.col(_RANK).alias("offset")
        stamp = F.struct(*place, *[F.col(f"{STAMP}.{name}").alias(name) for name in names])
        return replace(frame, data=chosen.withColumn(STAMP, stamp).drop(_RANK, PLACE))

    def _values(self, frame: Frame, rank: int | None = None) -> list[Mapping[str, Any]]:
        """Return the results after the remaining steps. Args: rank: of the record that gave them; None: any."""
        return [value for stamp, value in self._results(frame) if rank is None or stamp[2] == rank]

    def _results(self, frame: Frame) -> list[tuple[Place, Mapping[str, Any]]]:
        for step in self._after:
            frame = frames.apply(replace(frame, is_run=True), step)
        value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns]), JSON_OPTIONS).alias(_VALUE)
        rows = frame.data.where(is_good()).select(STAMP, value).collect()
        return [(_flat(row[STAMP]), json.loads(row[_VALUE])) for row in rows]

    # -- windows ------------------------------------------------------------------------------------------------------

    def _of_window(self, due: RegionRows) -> Made:
        cause = self._cause()
        at = {place for place in due.windows if place[:_OF_RECORD] == cause[:_OF_RECORD]}
        rows = due.frame.data.where(is_good())
        for number, name in enumerate(("source", "partition", "offset")):
            rows = rows.where(F.col(f"{STAMP}.{name}") == F.lit(cause[number]))
        own = replace(due.frame, data=rows)
        found = [(stamp[: _OF_RECORD + 1], value) for stamp, value in self._results(own)]
        keys = [key for key in self.keyed.arguments[0] if window_of(key) is None]
        windows = [n for n, key in zip(own.columns, self.keyed.arguments[0], strict=False) if window_of(key)]
        names = [name for name in own.columns[: len(self.keyed.arguments[0])] if name not in windows]
        equal = [place for place, value in found if place in at and same_values(value, self.found.content)]
        alike = [place for place, value in found if place in at and self._is_alike(value, [*names, *windows])]
        if not equal and not alike:
            raise NotRecomputed(
                "no window that its record ends has its key, in the records that are left and were read"
            )
        place = (equal or alike)[0]
        of_key = dict(self._by_place(own, keys and names))
        text = of_key.get(place, "{}")
        window = due.windows[place]
        note = "" if len(set(equal)) < 2 else f"{len(set(equal))} windows have equal results; these are the first one's"
        results = [value for where, value in found if where == place]
        return self._made(due, names, text, list(window.members), results, window=window, note=note)

    def _is_alike(self, value: Mapping[str, Any], names: Sequence[str]) -> bool:
        """Return whether a result has the key and the window of the one that was asked for."""
        content = self.found.content
        if not names or not {*names} <= content.keys() or not {*names} <= value.keys():
            return False
        return all(same_values(value[name], content[name]) for name in names)

    def _by_place(self, frame: Frame, names: Sequence[str]) -> list[tuple[Place, str]]:
        keys = [F.col(f"`{name}`") for name in names] or [F.lit(0)]
        return [(stamp[: _OF_RECORD + 1], key) for stamp, key in self._by_key(frame, keys)]

    # -- states -------------------------------------------------------------------------------------------------------

    def _of_state(self, due: RegionRows) -> Made:
        fold = StateFold(keyed=self.keyed, session=self.session)
        if isinstance(fold.watermark, ProcessingTime):
            raise NotRecomputed("its timers are by the clock")
        taken = fold.taken(due.frame)
        rows = self._by_key(taken, [F.col(f"`{name}`") for name in fold.keys])
        names, key = fold.keys, ""
        candidates = [self._key_or_none(rows, names, is_own=own) for own in ((False, True) if fold.timers else (True,))]
        done: Folded | None = None
        mine: list[Place] = []
        results: list[Mapping[str, Any]] = []
        for candidate in dict.fromkeys(each for each in candidates if each is not None):
            own = [stamp for stamp, of in rows if of == candidate]
            ordered = is_ordered(self.keyed)
            mine = fold.by_time(taken, own, self._cause()) if ordered else self.inputs.before(own, self._topics)
            until = fold.watermark_at(due, self._cause()) if fold.timers else None
            done = fold.of(self._only(taken, mine), until)
            results = self._values(fold.as_frame(done.results, taken)) if done.results else []
            key = candidate
            if any(same_values(value, self.found.content) for value in results):
                break
        if done is None:
            raise NotRecomputed("the record that caused it is not among those that are left and were read")
        return self._made(due, names, key, mine[done.since :], results)

    def _key_or_none(self, rows: Sequence[tuple[Place, str]], names: Sequence[str], *, is_own: bool) -> str | None:
        try:
            return self._key(rows, names, is_own=is_own)
        except NotRecomputed:
            return None

    def _cause(self) -> Place:
        cause = self.inputs.cause(self._topics)
        if cause is None:
            raise NotRecomputed("the record that caused it is not there any more")
        return cause

    # -- all ----------------------------------------------------------------------------------------------------------

    def _made(
        self, due: RegionRows, names: Sequence[str], key: str, rows: Sequence[Place],
        results: Sequence[Mapping[str, Any]], *, window: WindowResult | None = None, note: str = "",
    ) -> Made:  # fmt: skip
        """Args: key: as text. rows: oldest first."""
        if window is None:  # rows that are results of windows come from the rows of these
            rows = [m for stamp in rows for m in _members(due, stamp)]
        places = [self.inputs.at(stamp, self._topics).at for stamp in reversed(rows)]
        agrees: bool | None = any(same_values(value, self.found.content) for value in results)
        if not agrees and (self.region.output.format != "json" or self.region.varying):
            agrees = None
        unread = self.inputs.unread
        return Made(
            columns=tuple(names), values=tuple(json.loads(key).values())[: len(names)],
            window=None if window is None else (window.start, window.end), rows=len(rows),
            records=tuple(dict.fromkeys(places)), looked_at=self.inputs.looked_at, deleted=unread.deleted,
            skipped=unread.skipped, results=tuple(results), agrees=agrees, note=note,
        )  # fmt: skip


def _members(due: RegionRows, stamp: Place) -> Sequence[Place]:
    window = due.windows.get(stamp[: _OF_RECORD + 1])
    return (stamp,) if window is None else window.members


def _flat(stamp: Any) -> Place:
    return tuple(int(number) for number in stamp)


def same_values(one: Any, other: Any) -> bool:
    """Return whether two values of JSON are the same, but for the rounding of sums. Whole numbers are not rounded."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        are_numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return are_numbers and (one == other or math.isclose(one, other, rel_tol=_ROUNDED))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_values(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_values, one, other))
    return bool(one == other)
