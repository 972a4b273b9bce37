"""Python steps: `map_rows` and `stateful` of live regions, by the Java module and Python processes beside the tasks.

A row becomes bytes (RowCodec), a Python process answers it with bytes, and these become the results, or a dead letter.
In a query, the Java module asks the process for each row (PythonStep.java, PythonState.java). While Falkirk plans, and
in the test kit, a DataFrame is not a stream. Then a UDF answers with the same bytes, so the results are the same, and
the inference sees a Python function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from falkirk.declare.keys import key_columns
from falkirk.declare.policy import duration_s
from falkirk.declare.watermark import Expiry, ProcessingTime, Timers, Watermark, watermark_of_state
from falkirk.errors.conditions.batch import SCHEMA_INVALID_KEY, SCHEMA_INVALID_OPTION
from falkirk.steps.dataframes.names import BAD, STAMP, TIME
from falkirk.steps.live.effects import mark
from falkirk.steps.live.event_time import ALONE, KEY, LATE, Chain, as_key, bad, by_key
from falkirk.steps.live.event_time import column_names as time_names
from falkirk.steps.live.python_command import command

if TYPE_CHECKING:
    from falkirk.steps.live.row_calls import StateCalls

#: Columns between Python and the Java module: a request, which the answer replaces; the answer; the results one by one.
_CALL, _ANSWER, _PLACE, _RESULT = "__falkirk_call", "__falkirk_answer", "__falkirk_place", "__falkirk_result"
#: The request of a late record; the place of a call among those that a source record causes, if there are timers.
_LATE, _TURN = "__falkirk_late", "__falkirk_turn"


def schema_of(ddl: str, option: str, where: object) -> StructType:
    """Return the columns that DDL declares. Raises: DefinitionError: `SCHEMA_INVALID`."""
    problem: object = "it declares no columns"
    try:
        schema = StructType.fromDDL(ddl)
        if isinstance(schema, StructType) and schema.fields:
            return StructType([StructField(f.name, f.dataType) for f in schema.fields])
    except PySparkException as error:
        problem = str(error).strip().split("\n")[0]
    raise SCHEMA_INVALID_OPTION.error(where=where, schema=ddl, option=option, problem=problem)


@dataclass(frozen=True, kw_only=True)
class PythonStep:
    """A step that calls a Python function for each good row. Each result has a further sub-index in its stamp.

    Args: data: the rows. columns: the user's columns. carried: those of ours that stay, besides `STAMP` and `BAD`.
        depth: how many sub-indexes a stamp has. is_alone: see `effects.mark`. function: takes a row, and a state if
        there is one. options: the user's: `returns`, `poison`, `timeout`, and with a state `key` and `state`, `expiry`
        if it expires, `timers` if it has any, `order` if records have one, and `include_key` if results begin with the
        key. partitions: of the source, in a query. chain: of the frame.
    """

    data: DataFrame
    columns: Sequence[str]
    carried: Sequence[str]
    depth: int
    is_alone: bool
    function: Callable[..., Any]
    options: Mapping[str, Any]
    partitions: int = 0
    chain: Chain = ALONE

    def mapped(self) -> DataFrame:
        """Return the results of a function of rows. Raises: TypeError: Python can't have the type of a column."""
        from falkirk.steps.live.row_calls import RowCalls  # importing pyarrow is slow

        calls, asked = RowCalls(**self._known()), self._asked()
        if not self.data.isStreaming:
            return self._results(_by_udf(asked, calls))
        session: Any = self.data.sparkSession
        java = session._jvm.org.falkirk
        made = java.PythonStep.apply(asked._jdf, _CALL, self._command(calls))
        return self._results(DataFrame(made, session))

    def folded(self) -> DataFrame:
        """Return the results of a function of rows and of the states of their keys. Raises: as `mapped`.

        If it is not a query, each row counts as the only one of its key.
        """
        calls = self._calls()
        names = {f"{KEY}{i}": as_key(self.data, name) for i, name in enumerate(calls.keys)}
        watermark = watermark_of_state(self.options)
        time = [] if watermark is None else [F.col(TIME)]
        passed = [] if self.data.isStreaming else [F.col(f"`{name}`") for name in self._added]
        asked = self._asked(*[key.alias(name) for name, key in names.items()], *time, *passed)
        if not self.data.isStreaming:
            reads = F.hash(*names, *time, f"{STAMP}.partition") >= F.lit(-(2**31))
            return self._results(_by_udf(asked.where(F.col(BAD).isNotNull() | reads), calls.alone))
        session: Any = self.data.sparkSession
        known, state = (_CALL, KEY, STAMP, self._command(calls)), session._jvm.org.falkirk.PythonState
        if "order" in self.options and watermark is not None:
            operator = state.inOrder(*known, self.time_order(watermark), _LATE)
        else:
            times = None if watermark is None else self.state_times(watermark)
            operator = state(*known, times, _LATE, _TURN if self._timers else None)
        folded = by_key(asked, [F.col(name) for name in names], operator, self.chain)
        return self._results(folded if watermark is None else self._with_late(folded, calls.given))

    def state_times(self, watermark: Watermark) -> Any:
        """Return for the Java module when states expire, and whether they have timers."""
        session: Any = self.data.sparkSession
        if isinstance(watermark, ProcessingTime):
            return session._jvm.org.falkirk.StateTimes.byClock(time_names(self.data))
        expiry: Expiry | None = self.options.get("expiry")
        after_us = -1 if expiry is None else expiry.after_us
        made = session._jvm.org.falkirk.StateTimes
        return made(time_names(self.data), watermark.delay_us, after_us, self._timers is not None)

    def time_order(self, watermark: Watermark) -> Any:
        """Return for the Java module the order of records."""
        session: Any = self.data.sparkSession
        return session._jvm.org.falkirk.TimeOrder(time_names(self.data), watermark.delay_us, self.partitions)

    @property
    def places(self) -> int:
        """How many sub-indexes the stamp of a result has from this step."""
        return 1 if self._timers is None else 2

    @property
    def _timers(self) -> Timers | None:
        return self.options.get("timers")

    def _calls(self) -> "StateCalls":
        """Return the object that calls the functions of `stateful`."""
        from falkirk.steps.live.row_calls import StateCalls, TimerCalls

        state = schema_of(self.options["state"], "state", None)
        check_types(state)
        known = {**self._known(), "keys": key_columns(self.options["key"]), "state": state}
        return StateCalls(**known) if self._timers is None else TimerCalls(**known, on_timer=self._timers.function)

    def _with_late(self, folded: DataFrame, given: StructType) -> DataFrame:
        """Return the rows with late ones as bad ones."""
        row, is_late = _codec(self.data, "fromBytes", given, given, F.col(_LATE)), F.col(_LATE).isNotNull()
        late = bad(folded, is_late, F.lit(LATE), (), F.to_json(row), is_alone=self.is_alone)
        return folded.withColumn(BAD, late)

    @property
    def _returns(self) -> StructType:
        return schema_of(self.options["returns"], "returns", None)

    @property
    def _added(self) -> Sequence[str]:
        """The columns of the key with which results begin."""
        return added_keys(self.options)

    def _keys_of_results(self, is_good: Column) -> list[Column]:
        """Return these columns. While Falkirk plans, they are those of the rows, by Catalyst's identity, too."""
        if not self.data.isStreaming:
            return [F.col(f"`{name}`") for name in self._added]
        keys = [F.col(KEY).getField(f"{KEY}{i}") for i in range(len(self._added))]
        return [F.when(is_good, key).alias(name) for name, key in zip(self._added, keys, strict=True)]

    def _known(self) -> dict[str, Any]:
        """Return the fields of the object that calls the function."""
        given = StructType([self.data.schema[name] for name in self.columns])
        check_types(given)
        check_types(self._returns)
        zone = str(self.data.sparkSession.conf.get("spark.sql.session.timeZone"))
        fails = self.options["poison"] == "fail"
        return {
            "function": self.function, "given": given, "returns": self._returns, "zone": zone, "fails": fails,
        }  # fmt: skip

    def _asked(self, *keys: Column) -> DataFrame:
        """Return the rows as requests, with the columns of a key."""
        given = StructType([self.data.schema[name] for name in self.columns])
        users = F.struct(*[F.col(f"`{name}`") for name in self.columns])
        request = F.when(F.col(BAD).isNull(), _codec(self.data, "toBytes", BinaryType(), given, users))
        return self.data.select(request.alias(_CALL), *keys, STAMP, BAD, *self.carried)

    def _command(self, calls: Callable[[bytes], bytes]) -> Any:
        return command(self.data.sparkSession, calls, duration_s(self.options["timeout"]))

    def _results(self, answered: DataFrame) -> DataFrame:
        from falkirk.steps.live.row_calls import answer_of

        kind, carried = answer_of(self._returns), self.carried
        found = answered.withColumn(_ANSWER, _codec(self.data, "fromBytes", kind, kind, F.col(_CALL)))
        answer = F.col(_ANSWER)
        is_good = F.col(BAD).isNull() & answer.getField("reason").isNull()
        place = F.posexplode_outer(answer.getField("results")).alias(_PLACE, _RESULT)
        turns = [] if self._timers is None else [F.col(_TURN) if self.data.isStreaming else F.lit(0).alias(_TURN)]
        parts = [answer.getField(name) for name in ("reason", "value", "traceback")]
        # No record gave a timer that failed. The record that made it due has had its own effect.
        key = F.when(~answer.getField("is_timer"), mark(self.is_alone))
        rows = found.select(
            place,
            STAMP,
            letter(found, key, *parts).alias(BAD),
            is_good.alias(_ANSWER),
            *turns,
            *carried,
            *self._keys_of_results(is_good),
        )
        rows = rows.where(~F.col(_ANSWER) | F.col(_PLACE).isNotNull())
        places = [*(F.col(_TURN) for _ in turns), F.coalesce(F.col(_PLACE), F.lit(0))]
        subs = [each.alias(f"sub{self.depth + i}") for i, each in enumerate(places)]
        return rows.select(
            *[F.col(f"`{name}`") for name in self._added],
            *[F.col(_RESULT).getField(name).alias(name) for name in self._returns.names],
            F.struct(F.col(f"{STAMP}.*"), *subs).alias(STAMP), BAD, *carried,
        )  # fmt: skip


def added_keys(options: Mapping[str, Any]) -> Sequence[str]:
    """Return the columns of the key with which each result of a step begins. Args: options: the user's."""
    return key_columns(options["key"]) if options.get("include_key") else ()


def check_apart(added: Sequence[str], returns: StructType, ddl: str, where: object) -> None:
    """Check that results do not have the columns that `include_key` adds. Args: added: these. ddl: of `returns`.

    Raises: DefinitionError: `SCHEMA_INVALID`.
    """
    known = {name.casefold() for name in added}
    twice = next((name for name in returns.names if name.casefold() in known), None)
    if twice is not None:
        raise SCHEMA_INVALID_KEY.error(where=where, schema=ddl, column=twice)


def check_types(schema: StructType) -> None:
    """Check that rows can be passed to Python. Raises: TypeError."""
    from falkirk.steps.live.row_codec import RowCodec

    RowCodec(schema)


def letter(answered: DataFrame, key: Column, reason: Column, value: Column, traceback: Column) -> Column:
    """Return `BAD` with the rows on which a function failed: those with a reason. Args: key: see `effects.mark`."""
    known = answered.schema[BAD].dataType
    assert isinstance(known, StructType), "the reason and the raw record"
    before = F.col(BAD)
    had = before.getField("traceback") if "traceback" in known.names else F.lit(None).cast("string")
    fields = [before.getField(name).alias(name) for name in ("reason", "key", "value")]
    failed = F.struct(
        reason.alias("reason"), key.alias("key"), value.cast("binary").alias("value"),
        traceback.alias("traceback"),
    )  # fmt: skip
    bad = F.when(before.isNotNull(), F.struct(*fields, had.alias("traceback")))
    return bad.when(reason.isNotNull(), failed)


def _codec(data: DataFrame, method: str, kind: DataType, schema: StructType, value: Column) -> Column:
    """Return the call of a method of RowCodec.java as a column."""
    jvm: Any = data.sparkSession._jvm
    catalyst, option = jvm.org.apache.spark.sql.catalyst.expressions, jvm.scala.Option.empty()
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    codec = jvm.org.apache.spark.util.Utils.classForName("org.falkirk.RowCodec", True, False)  # also of spark.jars
    of = jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())
    both = [bridge.expression(each._jc) for each in (F.lit(schema.json()), value)]
    arguments, nothing = jvm.PythonUtils.toSeq(both), jvm.PythonUtils.toSeq([])
    call = catalyst.objects.StaticInvoke(codec, of, method, arguments, nothing, True, True, True, option)
    return ClassicColumn(bridge.column(call))


def _by_udf(asked: DataFrame, calls: Callable[[bytes], bytes]) -> DataFrame:
    def answered(request):  # type: ignore[no-untyped-def]  # PySpark takes types for those of another kind of UDF
        return None if request is None else calls(bytes(request))

    return asked.withColumn(_CALL, F.udf(answered, "binary", useArrow=False)(_CALL))
