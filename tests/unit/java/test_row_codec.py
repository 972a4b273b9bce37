"""Rows in Java are the rows in Python, byte by byte and value by value, and both refuse the same bytes."""

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from falkirk.steps.live.row_codec import RowCodec
from tests.strategies import examples
from tests.unit.java.conftest import Command

Ask = Callable[[str, T.StructType, bytes], str]

#: Integers of a number of bits.
_integers = {bits: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
_texts = st.text(max_size=9)  # draws no lone surrogates, which UTF-8 does not have
#: Times that Python can represent in each time zone.
_times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda time: time.replace(fold=0))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda number: Decimal(f"{number}e-{scale}"))


#: Each plain type, and its values.
_plain: dict[T.DataType, st.SearchStrategy[Any]] = {
    T.BooleanType(): st.booleans(),
    T.ByteType(): _integers[8],
    T.ShortType(): _integers[16],
    T.IntegerType(): _integers[32],
    T.LongType(): _integers[64],
    T.FloatType(): st.floats(width=32, allow_nan=False),
    T.DoubleType(): st.floats(allow_nan=False),
    T.StringType(): _texts,
    T.BinaryType(): st.binary(max_size=9),
    T.DateType(): st.dates(),
    T.TimestampType(): _times.map(lambda time: time.replace(tzinfo=UTC)),
    T.TimestampNTZType(): _times,
    T.DecimalType(5, 2): _decimals(5, 2),
    T.DecimalType(18, 0): _decimals(18, 0),
    T.DecimalType(38, 38): _decimals(38, 38),
    T.DecimalType(38, 10): _decimals(38, 10),
}


def _values(kind: T.DataType) -> st.SearchStrategy[Any]:
    match kind:
        case T.ArrayType():
            return st.lists(st.none() | _values(kind.elementType), max_size=3)
        case T.MapType():
            pairs = st.tuples(_values(kind.keyType), st.none() | _values(kind.valueType))
            return st.lists(pairs, max_size=3, unique_by=lambda pair: repr(pair[0]))
        case T.StructType():
            columns = st.tuples(*(st.none() | _values(f.dataType) for f in kind.fields))
            return columns.map(lambda drawn: dict(zip(kind.names, drawn, strict=True)))
    return _plain[kind]


def _struct(kinds: list[T.DataType]) -> T.StructType:
    return T.StructType([T.StructField(f"c{number}", kind) for number, kind in enumerate(kinds)])


_kinds: st.SearchStrategy[T.DataType] = st.recursive(
    st.sampled_from(sorted(_plain, key=repr)),
    lambda inner: st.one_of(
        inner.map(T.ArrayType),
        st.builds(T.MapType, st.sampled_from([T.StringType(), T.IntegerType(), T.DateType()]), inner),
        st.lists(inner, max_size=3).map(_struct),
    ),
    max_leaves=5,
)
_schemas = st.lists(_kinds, min_size=1, max_size=5).map(_struct)
_rows = _schemas.flatmap(lambda schema: st.tuples(st.just(schema), _values(schema)))


@pytest.fixture(scope="module")
def java(java_tests: Command) -> Iterator[Ask]:
    """A JVM that answers one line with one line."""
    with subprocess.Popen(java_tests("RowLines"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdin is not None
        assert jvm.stdout is not None

        def ask(question: str, schema: T.StructType, value: bytes) -> str:
            assert jvm.stdin is not None
            assert jvm.stdout is not None
            print(question, schema.json().encode().hex(), value.hex(), file=jvm.stdin, flush=True)
            return jvm.stdout.readline().removesuffix("\n")

        yield ask
        jvm.stdin.close()


def _is_row(schema: T.StructType, value: bytes) -> bool:
    try:
        RowCodec(schema).decode(value)
    except (UnicodeDecodeError, OverflowError):
        return True
    except ValueError:
        return False
    return True


@settings(deadline=None)
@given(_rows)
def test_a_row_comes_back_from_its_bytes(drawn: tuple[T.StructType, dict[str, Any]]) -> None:
    schema, row = drawn
    again = RowCodec(schema).decode(RowCodec(schema).encode(row))
    assert (again, repr(again)) == (row, repr(row))  # 0.0 equals -0.0, but their texts differ


@settings(deadline=None, max_examples=examples(30))  # a JVM answers, on a machine that may be busy
@given(_rows)
def test_spark_holds_the_same_row(java: Ask, drawn: tuple[T.StructType, dict[str, Any]]) -> None:
    schema, row = drawn
    value = RowCodec(schema).encode(row)
    assert java("again", schema, value) == value.hex()


@settings(deadline=None)  # the first call imports pyarrow
@given(_rows)
def test_values_are_those_of_micro_batches(drawn: tuple[T.StructType, dict[str, Any]]) -> None:
    schema, row = drawn
    in_batch = pa.RecordBatch.from_pylist([row], schema=to_arrow_schema(schema, timezone="UTC")).to_pylist()[0]
    assert RowCodec(schema).decode(RowCodec(schema).encode(row)) == in_batch


def test_spark_understands_the_values(java: Ask) -> None:
    schema = _struct([
        T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.DecimalType(20, 3), T.DoubleType(),
        T.ArrayType(T.StringType()), T.MapType(T.StringType(), T.ShortType()),
    ])  # fmt: skip
    values = (
        date(1500, 2, 3), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5),
        Decimal("-12.340"), 0.1, ["a", None], [("x", -2)],
    )  # fmt: skip
    value = RowCodec(schema).encode(dict(zip(schema.names, values, strict=True)))
    told = "{1500-02-03, 1969-12-31 23:59:59.999999, 2026-01-02 03:04:05, -12.340, 0.1, [a, null], {x -> -2}}"
    assert java("text", schema, value) == told


@settings(deadline=None, max_examples=examples(30))
@given(
    st.sampled_from(
        [
            _struct([T.StringType(), T.IntegerType()]),
            _struct([T.ArrayType(T.DecimalType(5, 2))]),
            _struct([T.MapType(T.StringType(), T.BooleanType()), _struct([T.DateType()])]),
        ]
    ),
    st.lists(st.integers(0, 3) | st.integers(0, 255), max_size=24).map(bytes),
)
def test_java_and_python_refuse_the_same_bytes(java: Ask, schema: T.StructType, value: bytes) -> None:
    assert (java("again", schema, value) != "refused") == _is_row(schema, value)


def test_timestamps_have_the_time_zone_of_the_session() -> None:
    schema, zone = _struct([T.TimestampType()]), timezone(timedelta(hours=2))
    again = RowCodec(schema, zone).decode(RowCodec(schema).encode({"c0": datetime(2026, 1, 1, tzinfo=UTC)}))
    assert again["c0"].isoformat() == "2026-01-01T02:00:00+02:00"


@pytest.mark.parametrize("value", ["1.005", "1000", "NaN", "Infinity", "1." + "0" * 80 + "1"])
def test_a_decimal_that_does_not_fit_is_not_rounded(value: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        RowCodec(_struct([T.DecimalType(5, 2)])).encode({"c0": Decimal(value)})


@pytest.mark.parametrize("kind", [T.DayTimeIntervalType(), T.ArrayType(T.VariantType())], ids=repr)
def test_other_types_are_refused_by_both(java: Ask, kind: T.DataType) -> None:
    schema = _struct([kind])
    with pytest.raises(TypeError, match="is not a type of the codec"):
        RowCodec(schema)
    assert java("again", schema, b"\0") == "refused"
