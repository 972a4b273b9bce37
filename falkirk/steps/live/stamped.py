"""Frames: DataFrames that carry stamps and bad records through the steps that the user recorded.

A frame is a DataFrame with the user's columns and two of ours. `STAMP` is one struct (source, partition, offset,
sub-indexes) that is compared as a tuple. `BAD` is null for a good record; for one that does not fit it is a struct
with the reason and the raw record, which every step lets through untouched, so that a single query (Real-time Mode
can't split or union a source with itself) still delivers it to the dead letters.

A bad record has no key, so in a keyed step it is grouped by its source partition, apart from all good ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from falkirk.declare.grouped import LatestValue
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import BESIDE, LOOKUP, NEWEST_ROW, Step
from falkirk.declare.watermark import Watermark
from falkirk.declare.windows import split_windows
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.dataframes import (
    COLUMN_MISSING,
    COLUMN_RESERVED,
    COLUMN_RESERVED_NAME,
    COLUMN_TWICE,
    STEP_INVALID_REASON,
    STEP_INVALID_SPARK,
)
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.steps.dataframes.names import BAD, GREATEST, OUR_COLUMNS, PREFIX, STAMP, TIME, VIEWS
from falkirk.steps.dataframes.quiet import quiet
from falkirk.steps.live import event_time, latest, newest, windows
from falkirk.steps.live.aggregates import aggregates_of, grouping_of, latest_of
from falkirk.steps.live.event_time import Chain, JoinKey
from falkirk.steps.live.lookups import PlannedView, looked_up
from falkirk.steps.live.needed import always_and_needs
from falkirk.steps.live.python_steps import PythonStep
from falkirk.steps.live.python_udfs import without_answers, without_udfs

#: The distance between the places of two sources: see `Frame.place`.
PLACES_OF_SOURCE = 1 << 32
_LANE = "__falkirk_lane"
#: Signs in the text of an expression that may refer to columns of ours: the prefix, a star, a pattern, a subquery, or a
#: computed name (`IDENTIFIER`). Without any of them, Spark need not analyse the plan again.
_SIGNS = (PREFIX, "*", "`", "[", "identifier")
_BAD = "struct<reason: string, key: binary, value: binary>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A DataFrame with stamps. `depth`: how many sub-indexes a stamp has. `keyed`: a keyed step has been passed.
    `is_run`: it calls UDFs as a query does, though it is no stream. `several`: its records have several sources.
    `partitions`: of its source, in a query. `sharded_by`: see `Chain`; empty: it has one keyed step at most.
    `join_key`: of its joins, while Falkirk plans."""

    data: DataFrame
    depth: int = 0
    keyed: bool = False
    grouped_by: tuple[str, ...] = ()
    is_run: bool = False
    several: bool = False
    partitions: int = 0
    sharded_by: tuple[int, ...] = ()
    join_key: JoinKey | None = None

    @property
    def columns(self) -> list[str]:
        """The user's columns."""
        return [name for name in self.data.columns if name not in OUR_COLUMNS]

    @property
    def own(self) -> DataFrame:
        """The rows with the user's columns alone."""
        return self.data.select(*[F.col(f"`{name}`") for name in self.columns])

    @property
    def place(self) -> Column:
        """The partition of a row's record, as a number. That of several sources has the source before it."""
        return F.expr(self.place_text)

    @property
    def place_text(self) -> str:
        """The same as text."""
        return f"{STAMP}.source * {PLACES_OF_SOURCE}L + {STAMP}.partition" if self.several else f"{STAMP}.partition"

    @property
    def chain(self) -> Chain:
        """The chain that the next keyed step is part of."""
        return Chain(sharded_by=self.sharded_by, has_begun=self.keyed)

    @property
    def is_alone(self) -> bool:
        """Whether each row is the only one of its record, and no step so far has a state."""
        return self.depth == 0 and not self.keyed

    @property
    def carried(self) -> list[str]:
        """Our columns that are present."""
        return [name for name in self.data.columns if name in OUR_COLUMNS]


def good(rows: DataFrame, depth: int = 0) -> Frame:
    """Return rows as a frame with none that does not fit; without stamps only plain steps can follow."""
    return Frame(data=rows.withColumn(BAD, F.lit(None).cast(_BAD)), depth=depth)


def is_good() -> Column:
    """Return the condition that a record is not a bad one."""
    return F.col(BAD).isNull()


def apply(frame: Frame, step: Step) -> Frame:
    """Return the frame after one recorded step.

    Raises: DefinitionError: `COLUMN_MISSING`, `STEP_INVALID`, `GENERATOR_IN_SELECT`; `where` is the step's line.
    """
    return attempt(frame, step, lambda: _OPERATIONS[step.operation](frame, *step.arguments))


def attempt(frame: Frame, step: Step, made: Callable[[], Frame]) -> Frame:
    """Return the frame that a step makes. Raises: as `apply`."""
    try:
        with quiet():
            after = made()
    except SPARK_ERRORS as error:
        raise _explain(error, frame, step) from error
    except TypeError as error:
        raise STEP_INVALID_REASON.error(where=step.where, operation=_method(step), reason=error) from error
    except _SeesOurs as error:
        raise COLUMN_RESERVED.error(where=step.where, operation=_method(step), reason=error) from error
    check_names(after.data.columns, step.where, ours=frame.carried + after.carried)
    return after


class _SeesOurs(Exception):
    """An expression of the user's refers to a column of ours, by name or through a '*'."""


def check_names(names: Sequence[str], where: object, ours: Sequence[str] = ()) -> None:
    """Refuse columns' names that could not be distinguished later: Spark ignores case.

    Raises: DefinitionError: `COLUMN_TWICE`, `COLUMN_RESERVED`.
    """
    seen: set[str] = set()
    for name in names:
        if name.casefold().startswith(PREFIX) and name not in ours:
            raise COLUMN_RESERVED_NAME.error(where=where, column=name)
        if name.casefold() in seen:
            raise _twice(name, where)
        seen.add(name.casefold())


def _twice(name: str, where: object) -> DefinitionError:
    return COLUMN_TWICE.error(where=where, column=name)


def _explain(error: Exception, frame: Frame, step: Step) -> DefinitionError:
    condition, operation = getattr(error, "getCondition", lambda: None)() or "", _method(step)
    if condition.startswith(("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")):
        parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
        missing = str((parameters or {}).get("objectName") or (parameters or {}).get("fieldName", "?"))
        return COLUMN_MISSING.error(
            where=step.where, column=missing.strip("`"), columns=tuple(frame.columns), operation=operation,
            missing=missing,
        )  # fmt: skip
    if condition == "AMBIGUOUS_REFERENCE" and isinstance(error, PySparkException):
        return _twice(str((error.getMessageParameters() or {}).get("name", "?")).strip("`"), step.where)
    reason = first_line(error)
    return STEP_INVALID_SPARK.error(where=step.where, operation=operation, spark_condition=condition, reason=reason)


def _method(step: Step) -> str:
    """Return the name of the method with which the user has declared a step."""
    if step.operation == "timedJoin":
        return str(step.arguments[1].method)
    return "lookup" if step.operation in (BESIDE, NEWEST_ROW) else step.operation


def _carry(frame: Frame) -> list[Column]:
    return [F.col(name) for name in frame.carried]


def _require(frame: Frame, *names: str) -> None:
    """See that columns exist, since Spark ignores unknown names in drop and rename."""
    if not {*names} <= {*frame.columns}:  # Spark may know a name in other letters, and has the error for one it lacks
        _refuse_ours(frame, [F.col(f"`{name}`") for name in names], has_names=True)


def _refuse_ours(frame: Frame, columns: Sequence[Any], *, has_names: bool = False) -> None:
    """Refuse expressions that refer to our columns. Args: has_names: Spark must find all names, in any case."""
    texts = [str(c._jc.toString() if hasattr(c, "_jc") else c).casefold() for c in columns]
    if not (has_names or any(sign in text for text in texts for sign in _SIGNS)):
        return
    analyzed = frame.data.select(*columns)._jdf.queryExecution().analyzed()
    references = analyzed.references().toSeq()
    for i in range(references.size()):
        if references.apply(i).name() in OUR_COLUMNS:
            raise _SeesOurs(f"it would see {references.apply(i).name()}")


def is_star(column: Any) -> bool:
    """Whether all columns are selected."""
    return str(column._jc.toString()) == "*" if hasattr(column, "_jc") else bool(column == "*")


def _select(frame: Frame, *columns: Any) -> Frame:
    plain = [c for entry in columns for c in (entry if isinstance(entry, list | tuple) else (entry,))]
    users = [F.col(f"`{name}`") for name in frame.columns]
    expanded = [c for entry in plain for c in (users if is_star(entry) else [entry])]
    if expanded:
        _refuse_ours(frame, expanded)
    data, expanded = _without_udfs(frame, expanded, named=True)
    return replace(frame, data=data.select(*expanded, *_carry(frame)))


def _without_udfs(frame: Frame, columns: Sequence[Any], *, named: bool = False) -> tuple[DataFrame, list[Column]]:
    """Return the rows with the answers of UDFs, and the columns without UDFs, unless Spark itself calls them."""
    if not (columns and (frame.is_run or frame.data.isStreaming)):
        return frame.data, [*columns]
    return without_udfs(frame.data, columns, frame.columns, named=named, is_alone=frame.is_alone)


def _select_expr(frame: Frame, *expressions: str) -> Frame:
    return _select(frame, *["*" if text.strip() == "*" else F.expr(text) for text in expressions])


def _where(frame: Frame, condition: Any) -> Frame:
    holds = F.expr(condition) if isinstance(condition, str) else condition
    _refuse_ours(frame, [holds], has_names=True)  # in a filter, Spark also finds columns that are no longer there
    data, [holds] = _without_udfs(frame, [holds])
    return replace(frame, data=without_answers(data.where(~is_good() | holds)))


def _lookup(frame: Frame, view: PlannedView, on: Mapping[str, Any], name: str, epoch: str | None) -> Frame:
    _refuse_names(name, *([] if epoch is None else [epoch]))
    keys = [key_column(key) for key in on.values()]
    _refuse_ours(frame, keys, has_names=True)
    data, keys = _without_udfs(frame, keys)
    data = looked_up(data, view, dict(zip(on, keys, strict=True)), name, epoch)
    return replace(frame, data=without_answers(data))


def _with_columns(frame: Frame, columns: dict[str, Column]) -> Frame:
    _refuse_names(*columns)
    if columns:
        _refuse_ours(frame, list(columns.values()))
    data, found = _without_udfs(frame, [*columns.values()])
    return replace(frame, data=without_answers(data.withColumns(dict(zip(columns, found, strict=True)))))


def _refuse_names(*names: str) -> None:
    for name in names:
        if isinstance(name, str) and name.casefold().startswith(PREFIX):
            raise _SeesOurs(f"it names {name}")


def _rename(frame: Frame, existing: str, new: str) -> Frame:
    _require(frame, existing)
    _refuse_names(new)
    return replace(frame, data=frame.data.withColumnRenamed(existing, new))


def _drop(frame: Frame, *names: str) -> Frame:
    if names:
        _require(frame, *names)
    return replace(frame, data=frame.data.drop(*names))


def _explode(frame: Frame, column: Any, name: str) -> Frame:
    array = F.col(column) if isinstance(column, str) else column
    _refuse_names(name)
    _refuse_ours(frame, [array])
    kept = [F.col(f"`{c}`") for c in frame.columns if c.casefold() != name.casefold()]
    data, [array] = _without_udfs(frame, [array])
    data = data.select(
        *kept, F.posexplode_outer(F.when(is_good(), array)).alias("__falkirk_place", name), *_carry(frame)
    )
    data = data.where(~is_good() | F.col("__falkirk_place").isNotNull())
    place = F.coalesce(F.col("__falkirk_place"), F.lit(0)).alias(f"sub{frame.depth}")
    if STAMP in frame.carried:  # after some steps in micro-batches, rows have no order
        data = data.withColumn(STAMP, F.struct(F.col(f"{STAMP}.*"), place))
    return replace(frame, data=data.drop("__falkirk_place"), depth=frame.depth + 1)


def key_column(key: Any) -> Column:
    """Return a grouping expression that the user gave as a column name or a Column."""
    return F.col(key) if isinstance(key, str) else key


def after_agg(frame: Frame, keys: Sequence[Any], aggregates: Sequence[Any]) -> Frame:
    """Return the frame after an aggregation, as Spark computes it. Raises: PySparkException."""
    lane = F.when(is_good(), F.lit(-1)).otherwise(frame.place).alias(_LANE)
    latest = [latest_of(a) for a in aggregates if isinstance(a, LatestValue)]
    # One aggregate for all that comes from the newest record: less state, and a shorter pause at a checkpoint.
    told = newest.of_key(frame.data, frame.place_text, [column for column, _ in latest])
    users = [F.expr(a) if isinstance(a, str) else a for a in aggregates if not isinstance(a, LatestValue)]
    data = frame.data.groupBy(*[key_column(k) for k in keys], lane).agg(*users, *told)
    names = data.columns
    data = data.where(always_and_needs(data, names[len(keys) + 1 :]))
    data = newest.order_checked(data, names[: len(keys)])
    grouped, others = names[: len(keys)], iter(names[len(keys) + 1 : -len(told)])
    picked = (newest.latest(i).alias(name) for i, (_, name) in enumerate(latest))
    ordered = [next(picked) if isinstance(a, LatestValue) else F.col(f"`{next(others)}`") for a in aggregates]
    data = data.select(*[F.col(f"`{name}`") for name in grouped], *ordered, *newest.ours())
    return replace(frame, data=data, keyed=True, grouped_by=tuple(grouped))


def _chained_agg(frame: Frame, *arguments: Any) -> Frame:
    """Return the frame after an aggregation, which may be one of several keyed steps of a query."""
    keys, aggregates = grouping_of(arguments)
    planned = after_agg(frame, keys, aggregates)
    if not (frame.sharded_by and frame.data.isStreaming):
        return planned
    of_keys, users = [key_column(key) for key in keys], aggregates_of(aggregates)
    return replace(planned, data=windows.running_aggregates(frame.data, of_keys, users, planned.columns, frame.chain))


def _latest(frame: Frame, keys: Sequence[str], name: str) -> Frame:
    after = after_agg(frame, *latest.grouping(frame.columns, keys, name))
    return replace(after, data=latest.of_records(after.data, frame.columns, after.carried), grouped_by=())


def _with_watermark(frame: Frame, watermark: Watermark) -> Frame:
    _require(frame, watermark.column)
    kind = frame.data.schema[watermark.column].dataType
    if not isinstance(kind, TimestampType):
        raise TypeError(f"column {watermark.column} is of type {kind.simpleString()}, and a time needs TIMESTAMP")
    known = frame.data.drop(TIME)
    return replace(frame, data=event_time.timed_records(known, frame.columns, watermark, is_alone=frame.is_alone))


def _drop_duplicates(frame: Frame, keys: Sequence[str], watermark: Watermark) -> Frame:
    _require(frame, *keys)
    data = event_time.first_of_key(
        frame.data, frame.columns, keys, watermark, is_alone=frame.is_alone, chain=frame.chain
    )
    return replace(frame, data=data, keyed=True)


def _windows(frame: Frame, keys: Sequence[Any], aggregates: Sequence[Any], mode: str, watermark: Watermark) -> Frame:
    [window], others = split_windows(keys)
    planned = after_agg(frame, keys, aggregates)
    spec = windows.spec_of(frame.data, window, watermark, aggregates_of(aggregates), mode)
    if frame.data.isStreaming:
        results = planned.columns
        data = windows.aggregated(
            frame.data, frame.columns, keys, [key_column(key) for key in others], spec, results, frame.depth,
            is_alone=frame.is_alone, chain=frame.chain,
        )  # fmt: skip
    else:
        place = F.lit(0).alias(f"sub{frame.depth}")
        data = planned.data.withColumn(STAMP, F.struct(F.col(f"{STAMP}.*"), place))
    return replace(planned, data=data, depth=frame.depth + 1)


def _python(frame: Frame, function: Callable[..., Any], options: Mapping[str, Any]) -> PythonStep:
    carried = [name for name in frame.carried if name not in (STAMP, BAD, TIME, GREATEST, VIEWS)]
    return PythonStep(
        data=frame.data, columns=frame.columns, carried=carried, depth=frame.depth, is_alone=frame.is_alone,
        function=function, options=options, partitions=frame.partitions, chain=frame.chain,
    )  # fmt: skip


def _map_rows(frame: Frame, *arguments: Any) -> Frame:
    return replace(frame, data=_python(frame, *arguments).mapped(), depth=frame.depth + 1, grouped_by=())


def _stateful(frame: Frame, *arguments: Any) -> Frame:
    _require(frame, *key_columns(arguments[1]["key"]))
    step = _python(frame, *arguments)
    return replace(frame, data=step.folded(), depth=frame.depth + step.places, keyed=True, grouped_by=())


_OPERATIONS: dict[str, Callable[..., Frame]] = {
    "select": _select,
    "selectExpr": _select_expr,
    "where": _where,
    "withColumns": _with_columns,
    "withColumnRenamed": _rename,
    "drop": _drop,
    "alias": lambda frame, name: frame,
    "explode": _explode,
    LOOKUP: _lookup,
    "agg": _chained_agg,
    "count": _chained_agg,
    NEWEST_ROW: _latest,
    "map_rows": _map_rows,
    "stateful": _stateful,
    "withWatermark": _with_watermark,
    "dropDuplicates": _drop_duplicates,
    "windows": _windows,
}
