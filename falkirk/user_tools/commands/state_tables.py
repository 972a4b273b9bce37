"""State tables: shows the tables of the keyed operators of a live region: of Python, windows, joins and chains.

Spark's state data source reads them. Keys are columns there. Python's states, rows that wait and the buffers of
aggregates are bytes, which are decoded with the steps of the plan. `Operator.java` says who keeps which table.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.declare.joins import TimedJoin
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import SourceNode, Step, steps_of
from falkirk.declare.windows import split_windows
from falkirk.plan.fingerprint import KEYED
from falkirk.plan.region import Region
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.steps.batch.in_epoch import empty
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.aggregates import aggregates_of, grouping_of
from falkirk.steps.live.python_steps import schema_of
from falkirk.steps.live.row_calls import stored_with_key
from falkirk.steps.live.row_codec import RowCodec
from falkirk.steps.live.stamped import Frame
from falkirk.steps.live.unions import after, number_source
from falkirk.steps.live.windows import aggregates_for_java
from falkirk.steps.sources.topics import kafka_schema, parse_records, parsing
from falkirk.theory.ids import BatchId
from falkirk.user_tools.commands.kept_state import StateTable
from falkirk.user_tools.commands.records import event_time_text

#: In the table `newest`: a key has no timer; the time of a record that counts for no expiry.
_NO_TIMER, _NEVER = -(2**63) + 1, -(2**61)
_Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StateTables:
    """The tables of one checkpoint. Args: key: the texts of the first columns of the key. limit: of rows in a table."""

    region: Region
    folder: Path
    number: BatchId
    key: Sequence[str]
    limit: int
    session: SparkSession

    def all(self) -> Iterator[StateTable]:
        """Yield what each keyed step keeps."""
        there = self._names()
        steps = [step for step in self.region.steps() if step.operation in KEYED]
        for place, step in enumerate(steps):
            for table, what, show in self._kept(step):
                name = table if place == 0 else f"{table}_{place}"
                if name in there:
                    yield self._table(name, f"{what} ({step.where.place})", step, show)

    def _names(self) -> set[str]:
        """Return the names of the tables."""
        rows = self.session.read.format("state-metadata").load(str(self.folder)).collect()
        told = [json.loads(row["operatorProperties"] or "{}") for row in rows]
        return {each["stateName"] for operator in told for each in operator.get("stateVariables", ())}

    def _kept(self, step: Step) -> Iterator[tuple[str, str, Callable[[_Values, _Values], _Values]]]:
        """Yield the tables of a step: the name, its content in words, and what shows a row of it."""
        match step.operation:
            case "dropDuplicates":
                yield "known", "first records", lambda key, value: {
                    "time": event_time_text(value["time"]), "partition": value["partition"],
                }  # fmt: skip
            case "stateful":
                yield "states", "states", self._python(step)
                yield "newest", "timers and expiry", _newest
            case "windows":
                show = self._aggregates(step, split_windows(step.arguments[0])[1], step.arguments[1])
                yield "open", "open windows", lambda key, value: {
                    "start": event_time_text(key["start"]), "end": event_time_text(value["end"]),
                    **show(value["buffers"]),
                }  # fmt: skip
            case "agg" | "count":
                shown = self._aggregates(step, *grouping_of(step.arguments))
                yield "aggregates", "aggregates", lambda key, value: shown(value["buffers"])
            case "timedJoin":
                yield "rows", "records that wait for a partner", self._waiting(step)
                yield "versions", "versions of the right side", self._waiting(step)

    def _table(self, name: str, what: str, step: Step, show: Callable[[_Values, _Values], _Values]) -> StateTable:
        read = self.session.read.format("statestore").option("batchId", self.number).option("stateVarName", name)
        data = read.load(str(self.folder))
        kind = data.schema["user_map_key"].dataType
        assert isinstance(kind, StructType), "the key of a table"
        of_key = "user_map_key.key" if "key" in kind.names else "user_map_key"
        inner = kind["key"].dataType if "key" in kind.names else kind
        assert isinstance(inner, StructType), "the columns of a key"
        parts = [F.col(f"{of_key}.`{column}`") for column in inner.names]
        names = [f"{column}" for column in _key_names(step, len(parts))]
        for part, text in zip(parts, self.key, strict=False):
            data = data.where(part.cast("string") == text)
        key_json = F.to_json(F.struct(*[p.alias(n) for p, n in zip(parts, names, strict=True)]), JSON_OPTIONS)
        data = data.select(key_json.alias("key"), F.col("user_map_key").alias("place"), "user_map_value").persist()
        try:
            count, rows = data.count(), data.orderBy("key").limit(self.limit).collect()
        finally:
            data.unpersist()
        shown = [
            json.loads(row["key"]) | show(row["place"].asDict(True), row["user_map_value"].asDict(True)) for row in rows
        ]
        columns = tuple(dict.fromkeys(column for row in shown for column in row)) or tuple(names)
        return StateTable(what=what, columns=columns, keys=len(names), count=count, rows=tuple(shown))

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _python(self, step: Step) -> Callable[[_Values, _Values], _Values]:
        zone = ZoneInfo(str(self.session.conf.get("spark.sql.session.timeZone")))
        options = step.arguments[1]
        stored = schema_of(options["state"], "state", step.where)
        has_timers = options.get("timers") is not None
        if has_timers:
            rows = self._before(step).data.schema
            names = {field.name.casefold(): field.name for field in rows}
            stored = stored_with_key(rows, [names[key.casefold()] for key in key_columns(options["key"])], stored)
        codec = RowCodec(stored, zone, lambda kind, number: f"{number}")

        def shown(_: _Values, value: _Values) -> _Values:
            row = codec.decode(bytes(value["state"]))
            return dict(row["state"]) if has_timers else row

        return shown

    def _aggregates(self, step: Step, keys: Sequence[Any], aggregates: Sequence[Any]) -> Callable[[bytes], _Values]:
        session: Any = self.session
        data = self._before(step).data
        made = aggregates_for_java(data, aggregates_of(aggregates))
        java = session._jvm.org.falkirk.ShownState
        schema = data._jdf.schema()
        return lambda buffers: dict(json.loads(java.results(made, schema, bytearray(buffers))))

    def _waiting(self, step: Step) -> Callable[[_Values, _Values], _Values]:
        session: Any = self.session
        java = session._jvm.org.falkirk.ShownState
        sides = [self._side(node) for node in (step.parent, step.arguments[0].node)]

        def show(key: _Values, value: _Values) -> _Values:
            side = key.get("side", 1)
            columns, stamp = sides[side], value["stamp"]
            row = {} if columns is None else json.loads(java.row(columns, bytearray(value["row"])))
            at = self.region.sources[stamp["source"]].topic.log
            found = {
                "side": "right" if side else "left", "time": event_time_text(value["time"]),
                "record": f"{at}/{stamp['partition']}@{stamp['offset']}",
            }  # fmt: skip
            return found | ({"has a partner": value["paired"]} if "paired" in value else {}) | {"row": row}

        return show

    def _side(self, node: Any) -> str | None:
        """Return the columns of a side of a join as JSON; None: it is the results of another join."""
        if any(step.operation == "timedJoin" for step in steps_of(node)):
            return None
        own = self._after(node).own
        return StructType(own.schema.fields).json()

    def _before(self, step: Step) -> Frame:
        return self._after(step.parent)

    def _after(self, node: Any) -> Frame:
        """Return a frame without rows that has the columns after a step."""

        def begin(source: SourceNode) -> Frame:
            raw = empty(self.session, kafka_schema())
            frame = parse_records(raw, parsing(source.topic, self.session, planned=True), timed=True)
            return number_source(frame, self.region.sources.index(source))

        return after(node, begin, frames.apply)


def _newest(key: _Values, value: _Values) -> _Values:
    timer = value.get("timer", _NO_TIMER)
    return {
        "newest record": event_time_text(value["time"]) if value["time"] > _NEVER else None,
        "timer": None if timer == _NO_TIMER else event_time_text(timer),
    }


def _key_names(step: Step, count: int) -> list[str]:
    """Return the names of the columns of a step's key."""
    found: list[str] = []
    match step.operation:
        case "dropDuplicates":
            found = list(step.arguments[0])
        case "stateful":
            found = list(key_columns(step.arguments[1]["key"]))
        case "windows" | "agg" | "count":
            keys = step.arguments[0] if step.operation == "windows" else grouping_of(step.arguments)[0]
            found = [each if isinstance(each, str) else f"key {n + 1}" for n, each in enumerate(split_windows(keys)[1])]
        case "timedJoin":
            join: TimedJoin = step.arguments[1]
            found = list(key_columns(join.on)) if isinstance(join.on, str | list | tuple) else []
    return (
        (found or [f"key {n + 1}" for n in range(count)])[:count]
        if len(found) in (0, count)
        else [f"key {n + 1}" for n in range(count)]
    )
