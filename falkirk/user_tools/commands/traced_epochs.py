"""Traced epochs: computes epochs of batches again, each row with the places of the records that it was made of.

The epochs are computed as in a run (`runtime/spark/epochs/jobs.py`), by the same functions. The rows of the inputs have
their places in a column that the functions do not see. The Java module changes Spark's plan of the result, so that
each operator passes this column on (`RowOrigins.java`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.batch import STAMP_TYPE, BatchInput, stamp_column
from falkirk.runtime.spark.epochs.computed import OWN_STATE, cast_to
from falkirk.runtime.spark.epochs.inputs import FitColumns, Inputs
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.steps.batch.in_epoch import BatchState, InEpoch
from falkirk.steps.batch.python import KIND, STATE_KIND
from falkirk.steps.dataframes.names import ORIGINS, PREFIX, STAMP
from falkirk.user_tools.commands.made_of_inputs import NotRecomputed

#: The columns with the place of a row of an input, and with the places that count.
_PLACE, _WANTED = f"{PREFIX}_origin", f"{PREFIX}_wanted"
_TYPE = f"ARRAY<{STAMP_TYPE.simpleString()}>"
#: Why Spark's operators of these names are in plans, for people.
_PYTHON = "calls Python for groups of rows"
_REASONS = {"MapInArrow": _PYTHON, "MapInPandas": _PYTHON, "SerializeFromObject": "has a step with a state"}

#: The place of a row: the name of its input, a partition, an offset, and the number of the row there. For a row of
#: another batch, the partition is 0, and the offset is its epoch. For a saved state, the name is empty, and the offset
#: is the epoch after which it was saved.
OriginPlace = tuple[str, int, int, int]
SAVED_STATE = ""


def traced(rows: DataFrame) -> DataFrame:
    """Return rows with `ORIGINS`. Raises: NotRecomputed: their plan has an operator whose rows can't be followed."""
    session: Any = rows.sparkSession
    try:
        return DataFrame(session._jvm.org.falkirk.RowOrigins.of(rows._jdf, ORIGINS, _TYPE), rows.sparkSession)
    except SPARK_ERRORS as error:
        name = first_line(error).rpartition(" ")[2]
        raise NotRecomputed(f"it {_REASONS.get(name, f'has the operator {name} of Spark')}") from error


def hidden(rows: DataFrame) -> DataFrame:
    """Return rows without `ORIGINS`, which `traced` finds again."""
    return rows.drop(ORIGINS)


def marked_state(state: BatchState, epoch: int) -> BatchState:
    """Return a state that was saved after an epoch. Its rows have this as their place."""
    place = F.struct(F.lit(SAVED_STATE), F.lit(-1), F.lit(epoch), F.lit(0)).cast(STAMP_TYPE)

    def marked(rows: DataFrame | str) -> DataFrame | str:
        return rows if isinstance(rows, str) else hidden(rows.withColumn(ORIGINS, F.array(place)))

    return {slot: marked(rows) for slot, rows in state.items()}


class TracedJobs(EpochJobs):
    """The epochs of one batch, whose inputs have their places.

    Attributes: only: the places of the rows that count, by the names of inputs. An input that is not there counts as a
        whole.
    """

    only: Mapping[str, Collection[OriginPlace]] = {}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        places = StructField(ORIGINS, ArrayType(STAMP_TYPE))
        for slot, schema in self.batch.slots.items():
            if slot.startswith("stateful"):
                self._casts[slot] = cast_to(StructType([*schema.fields, places]))

    def _inputs(self, epoch: Epoch) -> Inputs:
        self._fit = _MarkedColumns(self._among)
        refused = self.reads.refused(epoch)
        return _MarkedInputs(
            self.session, self._context, self.batch, epoch, self.all_logs, self.files, self._parsings, self._fit,
            refused=refused, among=self._among,
        )  # fmt: skip

    def _call(self, epoch: Epoch, state: BatchState, marks: Mapping[str, int]) -> InEpoch:
        def scratch() -> Any:
            raise NotRecomputed("it computes a part of its rows once")

        return _TracedCall(self._called_for(epoch), self.session, state, scratch, marks, self._loops)

    def _among(self, given: BatchInput, rows: DataFrame) -> DataFrame:
        """Return the rows that count. Args: rows: with `ORIGINS`, one place each."""
        places = self.only.get(given.name)
        if places is None:
            return rows
        columns = dict(zip(STAMP_TYPE.names, zip(*sorted(places), strict=True), strict=True))
        kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
        table = pa.table({n: pa.array(v, kind) for (n, v), kind in zip(columns.items(), kinds, strict=True)})
        found = self.session.createDataFrame(table)
        wanted = F.broadcast(found.select(F.struct(*STAMP_TYPE.names).alias(_WANTED)))
        return rows.join(wanted, F.col(ORIGINS)[0] == F.col(_WANTED), "left_semi")

    def next_state(self, epoch: Epoch, state: BatchState) -> tuple[DataFrame, BatchState]:
        """Return the results of an epoch with `ORIGINS`, and the state after it. Both are in Spark's storage.

        Raises: NotRecomputed. SPARK_ERRORS. FalkirkError.
        """
        computed = self.compute(epoch, state, f"why-{self.batch.name}-{epoch.number}")
        try:
            result = traced(computed.result).localCheckpoint(eager=True)
            after: dict[str, DataFrame | str] = {
                slot: rows if isinstance(rows, str) else hidden(traced(rows).localCheckpoint(eager=True))
                for slot, rows in computed.kept.items()
            }
        finally:
            computed.clean()
        if self.batch.state is not None and OWN_STATE not in after:
            after[OWN_STATE] = hidden(result).select(*[F.col(f"`{name}`") for name in self.batch.state.names])
        return result, after


_Among = Callable[[BatchInput, DataFrame], DataFrame]


class _MarkedColumns(FitColumns):
    def __init__(self, among: _Among) -> None:
        super().__init__()
        self._among = among

    def good(self, given: BatchInput, data: DataFrame, columns: Any, row: Column) -> DataFrame:
        """See FitColumns."""
        place = stamp_column(given, F.col(f"{STAMP}.partition"), F.col(f"{STAMP}.offset"), row)
        marked = self._among(given, data.where(self.is_good).withColumn(ORIGINS, F.array(place)))
        return super().good(given, marked, columns, row)


class _MarkedInputs(Inputs):
    def __init__(self, *arguments: Any, among: _Among, **options: Any) -> None:
        self._among = among
        super().__init__(*arguments, **options)

    def _frame(self, given: BatchInput) -> DataFrame:
        if given.topic is not None or given.folder is not None:
            return super()._frame(given)
        columns = given.schema.fields if given.stamped is None else given.schema.fields[:-1]
        schema = StructType([*columns, StructField(_PLACE, STAMP_TYPE)])
        rows = super()._frame(replace(given, schema=schema, stamped=_PLACE))
        marked = self._among(given, rows.withColumn(ORIGINS, F.array(_PLACE)))
        stamp = [] if given.stamped is None else [F.col(_PLACE).alias(given.stamped)]
        return marked.select(*[F.col(f"`{f.name}`") for f in columns], *stamp)


class _TracedCall(InEpoch):
    """A call whose rows keep their places, also those that it computes once."""

    def slot(self, operator: str) -> str:
        """See Call. Raises: NotRecomputed: the operator gives rows whose places can't be followed exactly."""
        if operator == "join-left" and self._numbers["watermark"]:
            raise NotRecomputed("it joins streams by their event time in micro-batches")
        return super().slot(operator)

    def also_aggregated(self) -> list[Column]:
        """See Call."""
        return [F.collect_list(_place_of_stamp()).alias(ORIGINS)]

    def type_of_places(self, rows: DataFrame, order: str) -> DataType | None:
        """See Call. Raises: NotRecomputed: the rows do not have the stamps of their records."""
        kind = rows.schema[order].dataType
        if getattr(kind, "names", None) != STAMP_TYPE.names:
            raise NotRecomputed("it orders the rows of a key by a column, or by steps that make several rows of one")
        return STAMP_TYPE

    def before(self, slot: str, schema: StructType) -> DataFrame:
        """See Call."""
        found = super().before(slot, schema)
        return traced(found) if ORIGINS in schema.names else found

    def once(self, rows: DataFrame) -> DataFrame:
        """See Call."""
        return hidden(traced(rows).localCheckpoint(eager=True))

    def split(
        self, rows: DataFrame, kinds: Mapping[str, StructType], *, determined_by: DataFrame | None = None
    ) -> dict[str, DataFrame]:
        """See Call."""
        own = {kind: origins for kind, schema in kinds.items() if (origins := _own_origins(kind, schema)) is not None}
        try:
            done = traced(rows)
        except NotRecomputed:
            if not own:
                raise
            done = rows  # an operator of Falkirk: states and dead letters need no places
        done = done.localCheckpoint(eager=True)

        def part(kind: str) -> DataFrame:
            of_kind = done.where(F.col(KIND) == kind)
            known = [own[kind].alias(ORIGINS)] if kind in own else [F.col(n) for n in done.columns if n == ORIGINS]
            rows = of_kind.select(*[f"{kind}.`{name}`" for name in kinds[kind].names if name != ORIGINS], *known)
            return rows if kind == STATE_KIND and ORIGINS in kinds[kind].names else hidden(rows)

        return {kind: part(kind) for kind in kinds}


def _own_origins(kind: str, schema: StructType) -> Column | None:
    """Return the places of rows that have them in a column: those in a window, or that in their stamps.

    Spark's windows have seen further rows before, to find the time of a partition.
    """
    if "values" in schema.names and ORIGINS in getattr(schema["values"].dataType, "names", ()):
        return F.col(f"{kind}.values.{ORIGINS}")
    if ORIGINS in schema.names:
        return F.col(f"{kind}.{ORIGINS}")
    own = schema[STAMP].dataType if STAMP in schema.names else None
    if isinstance(own, StructType) and own.names[: len(STAMP_TYPE.names)] == STAMP_TYPE.names:
        return F.array(_place_of_stamp(f"{kind}."))
    return None


def _place_of_stamp(within: str = "") -> Column:
    return F.struct(*[F.col(f"{within}{STAMP}.{name}") for name in STAMP_TYPE.names]).cast(STAMP_TYPE)
