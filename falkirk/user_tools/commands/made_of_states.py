"""Made of, states: calls the functions of `stateful` again with the rows of one key, as an epoch of a batch does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from falkirk.checker.timed import Place
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import Step
from falkirk.declare.watermark import Watermark, watermark_of_state
from falkirk.steps.batch.call import LETTER_SCHEMA
from falkirk.steps.batch.folding import Beside, FoldedKey, StateRules
from falkirk.steps.batch.python import KIND, LETTER_KIND, RESULT_KIND, STATE_KIND, RowCollector, plain_rows
from falkirk.steps.dataframes.names import AGE, GREATEST, STAMP, TIME
from falkirk.steps.live.python_steps import added_keys, schema_of
from falkirk.steps.live.stamped import Frame, good, is_good
from falkirk.user_tools.commands.due_timed import RegionRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Args: results: of the last row, and of the timers that fire then. since: the first row of the present state."""

    results: list[dict[str, Any]]
    since: int


@dataclass(frozen=True, kw_only=True)
class StateFold:
    """A step `stateful`, whose functions are called in this process."""

    keyed: Step
    session: SparkSession

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(key_columns(self.options["key"]))

    @property
    def options(self) -> Mapping[str, Any]:
        """Those of the user."""
        options: Mapping[str, Any] = self.keyed.arguments[1]
        return options

    @property
    def timers(self) -> Any:
        """Its timers, or None."""
        return self.options.get("timers")

    @cached_property
    def watermark(self) -> Watermark | None:
        """That of its records, if they have one."""
        return watermark_of_state(self.options)

    def taken(self, frame: Frame) -> Frame:
        """Return the rows that reach the function: no late ones."""
        data = frame.data.where(is_good())
        if self.watermark is not None:
            data = data.where(F.col(TIME) >= F.col(GREATEST) - F.lit(self.watermark.delay_us))
        return Frame(data=data, depth=frame.depth, is_run=True)

    def of(self, rows: Frame, until: int | None) -> Folded:
        """Return the results of the last row of a key.

        Args: rows: of the key, in the order of their stamps. until: the watermark at the record that caused the result;
            None: no timer fires then.
        """
        (key, out), since = self._new(rows), 0
        for number, each in enumerate(self._plain(rows)):
            out.batch()  # forget the results of the row before
            if self._rules is not None:
                key.move(each[AGE]["watermark"])
            if key.state is None:
                since = number
            key.key = tuple(each["key"].values())
            key.add(each)
        if until is not None:
            key.move(until)
        found = [each[RESULT_KIND] for each in out.batch().to_pylist() if each[KIND] == RESULT_KIND]
        return Folded(results=found, since=since)

    def as_frame(self, results: Sequence[Mapping[str, Any]], rows: Frame) -> Frame:
        """Return results as rows for the steps after it. Args: rows: some that the function gets."""
        table = pa.Table.from_pylist([*results], schema=_arrow(self._returned(rows.data.schema)))
        zero = F.lit(0)
        stamp = F.struct(zero.alias("source"), zero.alias("partition"), zero.cast("long").alias("offset"))
        return good(self.session.createDataFrame(table).withColumn(STAMP, stamp))

    def by_time(self, frame: Frame, stamps: Sequence[Place], cause: Place) -> list[Place]:
        """Return the rows of a key that come before that of the cause by their times, and that row."""
        mine = {*stamps}
        found = sorted((row[TIME], tuple(row[STAMP])) for row in frame.data.select(STAMP, TIME).collect())
        of_key = [(time, stamp) for time, stamp in found if stamp in mine]
        last = next((each for each in of_key if each[1] == cause[: len(each[1])]), None)
        return [stamp for time, stamp in of_key if last is None or (time, stamp) <= last]

    def watermark_at(self, due: RegionRows, cause: Place) -> int | None:
        """Return the watermark of the partition of a record once the record has moved it."""
        assert self.watermark is not None, "timers have one"
        assert due.times is not None, "and so have the rows"
        of_partition = (F.col(f"{STAMP}.source") == cause[0]) & (F.col(f"{STAMP}.partition") == cause[1])
        upto = due.times.where(of_partition & (F.col(f"{STAMP}.offset") <= cause[2]))
        (row,) = upto.agg(F.max(GREATEST).alias(GREATEST)).collect()
        return None if row[GREATEST] is None else int(row[GREATEST]) - self.watermark.delay_us

    # -- the parts of a fold ------------------------------------------------------------------------------------------

    @cached_property
    def _rules(self) -> StateRules | None:
        expiry = self.options.get("expiry")
        if expiry is None and self.timers is None:
            return None
        return StateRules(
            expires_us=None if expiry is None else expiry.after_us,
            on_timer=None if self.timers is None else self.timers.function,
            zone=str(self.session.conf.get("spark.sql.session.timeZone")),
        )

    @cached_property
    def _own(self) -> StructType:
        return schema_of(self.options["returns"], "returns", self.keyed.where)

    @cached_property
    def _state(self) -> StructType:
        return schema_of(self.options["state"], "state", self.keyed.where)

    def _returned(self, rows: StructType) -> StructType:
        """Return the columns of a result."""
        return StructType([*[rows[name] for name in added_keys(self.options)], *self._own.fields])

    def _new(self, rows: Frame) -> tuple[FoldedKey, RowCollector]:
        given = rows.data.schema
        state = StructType([*[given[name] for name in self.keys], *self._state.fields])
        kinds = {RESULT_KIND: self._returned(given), STATE_KIND: state, LETTER_KIND: LETTER_SCHEMA}
        schema = _arrow(StructType([StructField(KIND, StringType()), *[StructField(n, k) for n, k in kinds.items()]]))
        out = RowCollector(schema, self.keyed.where.place, fails=False)
        beside = None
        if added_keys(self.options):
            beside = Beside(own=tuple(self._own.names), include_key=True, stamp=None)
        key = FoldedKey(
            function=self.keyed.arguments[0], rules=self._rules, out=out, keys=list(self.keys), key=(),
            make=Row(*rows.columns), make_state=Row(*self._state.names), beside=beside,
        )  # fmt: skip
        return key, out

    def _plain(self, rows: Frame) -> list[dict[str, Any]]:
        """Return the rows as the function gets them, in the order of their stamps."""
        key = F.struct(*[F.col(f"`{name}`") for name in self.keys]).alias("key")
        row = F.struct(*[F.col(f"`{name}`") for name in rows.columns]).alias("row")
        ages = []
        if self._rules is not None:
            assert self.watermark is not None, "it expires, or has timers"
            now = F.col(GREATEST) - F.lit(self.watermark.delay_us)
            ages = [F.struct(F.col(TIME).alias("time"), now.alias("watermark")).alias(AGE)]
        table = rows.data.orderBy(STAMP).select(key, F.col(STAMP).alias("order"), row, *ages).toArrow()
        return [each for batch in table.to_batches() for each, _ in plain_rows(batch)]


def _arrow(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC")
