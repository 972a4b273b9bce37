"""Functions: `map_rows` and `stateful` run a user's Python function on each row, in Spark's Python workers."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import pyspark.cloudpickle as cloudpickle
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from falkirk.declare.asserting import assertion_of
from falkirk.declare.keys import key_columns
from falkirk.errors.conditions.batch import OPTION_UNKNOWN_POISON, STAMP_MISSING
from falkirk.errors.location import SourceLocation, caller
from falkirk.steps.batch.ages import Age
from falkirk.steps.batch.call import LETTER_SCHEMA, Call, current
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.names import ORIGINS, PREFIX
from falkirk.steps.live.python_steps import check_apart, schema_of
from falkirk.steps.static_analysis.columns import require_columns

_PoisonPolicy = Literal["dead-letter", "fail"]
#: The column with a row's stamp, in a parameter that is marked `Stamped`.
STAMP_COLUMN = "stamp"


def map_rows(
    rows: DataFrame,
    function: Callable[[Row], Any],
    *,
    returns: str,
    poison: _PoisonPolicy = "dead-letter",
    where: SourceLocation | None = None,
) -> DataFrame:
    """Return the results of a Python function for each row: a dict or Row, several of them, or None.

    Args:
        rows: of a batch.
        function: runs in Spark's Python workers, once per row that counts.
        returns: its columns, as Spark DDL.
        poison: how to treat a row on which it fails. ``dead-letter`` sends the row to the dead letters with the
            traceback, and the epoch continues; with ``fail`` the processor stays down.
        where: the user's line, if it is not the one that calls this.
    Raises: DefinitionError: `OUTSIDE_OF_BATCH`, `SCHEMA_INVALID`, `OPTION_UNKNOWN`.
    """
    call, where = current("map_rows"), where or caller()
    kinds = {"result": schema_of(returns, "returns", where), "letter": LETTER_SCHEMA}
    work = _worker("mapping", kinds, poison, where)
    done = rows.mapInArrow(work(function, list(rows.columns)), _tagged(kinds))
    return _taken(call, done, kinds)["result"]


def stateful(
    rows: DataFrame,
    function: Callable[[Row, Row | None], Any],
    *,
    key: str | Sequence[str],
    state: str,
    returns: str,
    order: str = STAMP_COLUMN,
    include_key: bool = False,
    poison: _PoisonPolicy = "dead-letter",
    where: SourceLocation | None = None,
    age: Age | None = None,
    depth: int | None = None,
) -> DataFrame:
    """Return the results of a Python function for each row and the state of its key; the function also returns the new
    state.

    It is called as ``function(row, state)``, for each key's rows in the order of their stamps. `state` is None for a
    key without state. It returns ``(results, state)``, with results as in `map_rows`. None deletes the key's state.

    Args:
        rows: of a batch. key: the column(s) by which states are kept.
        state: the columns of a state, without the key, as Spark DDL.
        returns: the columns of the results, as Spark DDL.
        order: the column that orders a key's rows. The default is their stamps, which a parameter marked `Stamped` has.
        include_key: each result begins with the columns of the key, which Falkirk adds, and `returns` has the others.
        poison, where: as in `map_rows`; the state from before the row remains.
        age: when states expire, and their timers, for `Stream.stateful`. Then rows have a column `AGE`.
        depth: results have the stamps of their rows, whose sub-indexes these are so many; None: they have none.
    Raises: DefinitionError: as `map_rows`; `COLUMN_MISSING`, `STAMP_MISSING`.
    """
    call, where = current("stateful"), where or caller()
    keys = key_columns(key)
    check_columns(rows, [*keys, order], where)
    own = schema_of(state, "state", where)
    places = call.type_of_places(rows, order)
    traces = [] if places is None else [StructField(ORIGINS, ArrayType(places))]
    ages = [*([] if age is None else age.fields), *traces]
    whole = StructType([*[rows.schema[k] for k in keys], *own.fields, *ages])
    results, added = schema_of(returns, "returns", where), keys if include_key else ()
    check_apart(added, results, returns, where)
    all_ = [*[StructField(k, rows.schema[k].dataType) for k in added], *results.fields]
    stamp = None if depth is None else (order, f"sub{depth}")
    if stamp is not None:
        numbers = cast(StructType, rows.schema[order].dataType).fields
        all_.append(StructField(order, StructType([*numbers, StructField(stamp[1], IntegerType())])))
    kinds = {"result": StructType([*all_, *traces]), "state": whole, "letter": LETTER_SCHEMA}
    slot, rows = call.slot("stateful"), call.once(rows)
    before = call.before(slot, whole)
    touched = rows.select(*columns_by_name(keys))
    if age is not None and age.on_timer is not None:
        touched = touched.unionByName(age.firing(before, columns_by_name(keys)))
    touched = touched.distinct()
    mine, others = (join_on(before, touched, keys, how) for how in ("left_semi", "left_anti"))
    of_rows = [F.struct(*columns_by_name(keys)).alias("key"), F.col(f"`{order}`").alias("order")]
    of_state = columns_by_name([field.name for field in ages])
    of_row = [F.col(f.name) if f.name in rows.columns else F.lit(None).cast(f.dataType).alias(f.name) for f in ages]
    names = [c for c in rows.columns if not c.startswith(PREFIX)]
    new = rows.select(
        *of_rows, F.lit(None).cast(own).alias("state"), F.struct(*columns_by_name(names)).alias("row"), *of_row
    )
    old = mine.select(
        F.struct(*columns_by_name(keys)).alias("key"), F.lit(None).cast(new.schema["order"].dataType).alias("order"),
        F.struct(*columns_by_name(own.names)).alias("state"), F.lit(None).cast(new.schema["row"].dataType).alias("row"),
        *of_state,
    )  # fmt: skip
    both = new.unionByName(old) if age is None else age.with_end(new.unionByName(old))
    sorted_ = both.repartition("key").sortWithinPartitions("key", F.col("row").isNotNull(), "order")
    work = _worker("folding", kinds, poison, where)
    rules = None if age is None else _rules(age, rows.sparkSession)
    beside = _beside(results.names, include_key=include_key, stamp=stamp, traces=bool(traces))
    options = names, list(keys), list(own.names), rules, beside
    on_timer = None if age is None else age.on_timer
    done = sorted_.mapInArrow(work(function, *options, calls=on_timer), _tagged(kinds))
    taken = _taken(call, done, kinds)
    states = others.unionByName(taken["state"])
    call.keep(slot, states if age is None else age.unexpired(states))
    return taken["result"]


def _beside(own: Sequence[str], *, include_key: bool, stamp: tuple[str, str] | None, traces: bool) -> Any:
    from falkirk.steps.batch.folding import Beside

    if not include_key and stamp is None and not traces:
        return None
    return Beside(own=tuple(own), include_key=include_key, stamp=stamp, traces=traces)


def _rules(age: Age, session: SparkSession) -> Any:
    from falkirk.steps.batch.folding import StateRules  # importing pyarrow is slow

    zone = str(session.conf.get("spark.sql.session.timeZone"))
    return StateRules(expires_us=age.after_us, on_timer=age.on_timer, zone=zone)


def _worker(kind: str, kinds: dict[str, StructType], poison: str, where: SourceLocation) -> Callable[..., Any]:
    """Return a factory of task functions: `mapping` or `folding`, without the user's function."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from falkirk.errors import redaction
    from falkirk.steps.batch import folding, python  # importing pyarrow is slow
    from falkirk.steps.dataframes import user_function

    if poison not in ("dead-letter", "fail"):
        raise OPTION_UNKNOWN_POISON.error(where=where, option="poison", value=poison)
    for module in (folding, python, user_function, redaction):  # executors may not have Falkirk installed
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    # Times without a zone that a function returns are in UTC, as are the times that it gets.
    arrow, fails, name = to_arrow_schema(_tagged(kinds), timezone="UTC"), poison == "fail", str(where)

    def made(function: Callable[..., Any], *options: Any, calls: Callable[..., Any] | None = None) -> Any:
        factory: Any = folding.folding if kind == "folding" else python.mapping
        work = factory(function, *options, lambda: python.RowCollector(arrow, name, fails=fails))
        # For code that looks for the user's declarations. It sees a function without one, if there is any.
        work.__wrapped__ = function if calls is None or assertion_of(calls) is not None else calls
        return work

    return made


def _tagged(kinds: dict[str, StructType]) -> StructType:
    return StructType([StructField(KIND, StringType()), *[StructField(k, s) for k, s in kinds.items()]])


def _taken(call: Call, rows: DataFrame, kinds: dict[str, StructType]) -> dict[str, DataFrame]:
    taken = call.split(rows, kinds)
    call.reject(taken["letter"])
    return taken


def columns_by_name(names: Sequence[str]) -> list[Column]:
    """Return columns by their names, which may have any characters."""
    return [F.col(f"`{name}`") for name in names]


def join_on(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str) -> DataFrame:
    """Return a join by keys. Null is a key like any other."""
    return left.join(right, [left[f"`{k}`"].eqNullSafe(right[f"`{k}`"]) for k in keys], how)


def check_columns(rows: DataFrame, names: Sequence[str], where: SourceLocation) -> None:
    """Check that rows have columns. Raises: DefinitionError: `STAMP_MISSING`, `COLUMN_MISSING`."""
    if STAMP_COLUMN in names and STAMP_COLUMN not in rows.columns:
        raise STAMP_MISSING.error(where=where, columns=tuple(rows.columns))
    require_columns(names, rows.columns, where, lambda name: f"the rows have no column {name!r}.")
