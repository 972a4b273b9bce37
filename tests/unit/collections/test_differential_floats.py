"""Floating-point numbers: there is one zero and one NaN, and NaN is the greatest number, as in Spark."""

import math
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falkirk.steps.differential import operators, rows
from falkirk.steps.differential.floats import of_ordinals, ordinals
from falkirk.steps.differential.operators import Aggregate, AggregateKind, Group, Join, Reduce, Top
from falkirk.steps.differential.rows import DIFFERENCE, consolidate
from tests.strategies import examples
from tests.unit.collections.test_differential_operators import (
    LONG,
    Change,
    Epochs,
    Rows,
    all_times,
    by_key,
    epochs_of,
    once,
    pairs,
    run_join,
    run_reduce,
    up_to,
)

#: One of the other bit patterns of NaN.
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
NUMBERS = [None, 0.0, -0.0, math.nan, OTHER_NAN, 1.0, -1.5, math.inf, -math.inf]
numbers = st.sampled_from(NUMBERS)
DOUBLE, FLOAT = pa.float64(), pa.float32()
TYPES = pytest.mark.parametrize("kind", [DOUBLE, FLOAT], ids=str)
Reduced = tuple[Reduce, Callable[[Rows], Rows]]


@pytest.fixture(autouse=True)
def one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal keys have the same hash. Different keys may share a hash."""
    monkeypatch.setattr("tests.unit.collections.test_differential_operators.hash_of", lambda key: 0)


def spoken(changes: list[Change]) -> list[Change]:
    """Return changes as Spark would group them: in Python, NaN does not equal itself."""

    def one(value: Any) -> Any:
        return "NaN" if value != value else value

    return [(time, tuple(map(one, row)), count) for time, row, count in changes]


def place(value: Any) -> tuple[bool, float]:
    return value == "NaN", 0.0 if value == "NaN" else value


def extreme(kind: Callable[..., Any]) -> Callable[[Rows], Rows]:
    """Return the least or the greatest value of each key."""

    def of(some: Rows) -> Rows:
        groups = {key: [v for (v,) in values if v is not None] for key, values in by_key(some, 1).items()}
        return Counter((*key, kind(known, key=place, default=None)) for key, known in groups.items())

    return of


def greatest(some: Rows) -> Rows:
    """Return the two greatest values of each key; null comes last."""
    found: Rows = Counter()
    for key, values in by_key(some, 1).items():
        known = [v for (v,) in values.elements()]
        known.sort(key=lambda v: (v is not None, place(v or 0.0)), reverse=True)
        found.update((*key, v) for v in known[:2])
    return found


def counts(some: Rows) -> Rows:
    return Counter((*key, values.total()) for key, values in by_key(some, 1).items())


def reduce(keys: tuple[str, ...], results: tuple[str, ...], how: Group | Top) -> Reduce:
    return Reduce(keys=keys, values=() if results == ("n",) else results, results=results, how=how)


def group(kind: AggregateKind) -> Group:
    column, name = ("", "n") if kind == "count" else ("v", "v")
    return Group(aggregates=(Aggregate(kind=kind, column=column, name=name),))


REDUCED: dict[str, Reduced] = {
    "distinct": (reduce(("k", "v"), (), Group()), once),
    "count": (reduce(("k",), ("n",), group("count")), counts),
    "min": (reduce(("k",), ("v",), group("min")), extreme(min)),
    "max": (reduce(("k",), ("v",), group("max")), extreme(max)),
    "top": (reduce(("k",), ("v",), Top(by=(("v", True),), rows=2)), greatest),
}


def check_reduce(name: str, kind: pa.DataType, epochs: Epochs, merge: bool = False) -> None:
    operator, comes_to = REDUCED[name]
    if name == "count":
        epochs = [[(time, row[:1], count) for time, row, count in epoch] for epoch in epochs]
    types = {n: kind for n in ("k", "v") if n in (*operator.keys, *operator.values)}
    for put, said in run_reduce(operator, types, epochs, 1, merge=merge):
        for time in all_times(1):
            assert up_to(spoken(said), time) == comes_to(up_to(spoken(put), time)), (name, time)


@TYPES
@pytest.mark.parametrize("name", REDUCED)
def test_numbers_are_grouped_and_ordered_as_by_spark_at_every_time(name: str, kind: pa.DataType) -> None:
    @settings(deadline=None, max_examples=examples(10))
    @given(epochs_of(st.tuples(numbers, numbers), 1), st.booleans())
    @example([[((0,), (n, v), 1) for n in NUMBERS for v in NUMBERS]], False)
    def check(epochs: Epochs, merge: bool) -> None:
        check_reduce(name, kind, epochs, merge)

    check()


def check_join(kind: pa.DataType, ones: Epochs, others: Epochs) -> None:
    operator = Join(keys=("k",), left=("v",), right=("w",))
    for (lefts, rights), said in run_join(
        operator, ({"k": kind, "v": LONG}, {"k": kind, "w": LONG}), [ones, others], 1
    ):
        for time in all_times(1):
            assert up_to(spoken(said), time) == pairs(up_to(spoken(lefts), time), up_to(spoken(rights), time), 1)


@TYPES
def test_numbers_meet_in_a_join_as_in_spark(kind: pa.DataType) -> None:
    keyed = st.tuples(numbers, st.sampled_from([1, 2]))

    @settings(deadline=None, max_examples=examples(10))
    @given(epochs_of(keyed, 1), epochs_of(keyed, 1))
    @example([[((0,), (n, 1), 1) for n in NUMBERS]], [[((0,), (n, 2), 1) for n in NUMBERS]])
    def check(ones: Epochs, others: Epochs) -> None:
        check_join(kind, ones, others)

    check()


ALL: Epochs = [[((0,), (n, v), 1) for n in NUMBERS for v in NUMBERS]]
LEFT: Epochs = [[((0,), (n, 1), 1) for n in NUMBERS]]


@pytest.mark.parametrize(
    ("where", "what", "instead", "run"),
    [
        (rows, "normalised", lambda table: table, lambda: check_reduce("distinct", DOUBLE, ALL)),
        (rows, "normalised", lambda table: table, lambda: check_reduce("count", DOUBLE, ALL)),
        (rows, "normalised", lambda table: table, lambda: check_join(DOUBLE, LEFT, LEFT)),
        (operators, "is_floating", lambda column: False, lambda: check_reduce("max", DOUBLE, ALL)),
        (operators, "is_floating", lambda column: False, lambda: check_reduce("top", DOUBLE, ALL)),
    ],
    ids=["distinct", "count", "join", "max", "top"],
)
def test_without_it_arrow_has_it_otherwise(
    where: object, what: str, instead: object, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    monkeypatch.setattr(where, what, instead)
    with pytest.raises(AssertionError):
        run()


@given(st.lists(st.floats(width=32) | st.none()))
@example([])
def test_ordinals_are_in_the_order_of_the_numbers(some: list[float | None]) -> None:
    for kind in (DOUBLE, FLOAT):
        column = rows.normalised(pa.table({"v": pa.array(some, kind)})).column("v")
        made = ordinals(column)
        back = of_ordinals(made, kind)
        assert list(map(repr, back.to_pylist())) == list(map(repr, column.to_pylist()))
        known = [(v != v, 0.0 if v != v else v, o) for v, o in zip(column.to_pylist(), made.to_pylist(), strict=True)
                 if v is not None]  # fmt: skip
        assert [o for *_, o in sorted(known)] == sorted(o for *_, o in known)


def test_a_row_is_taken_away_by_one_that_spark_calls_the_same() -> None:
    columns = {"v": [0.0, -0.0, math.nan, OTHER_NAN], DIFFERENCE: [1, -1, 1, -1]}
    assert not consolidate(pa.table(columns, schema=pa.schema({"v": DOUBLE, DIFFERENCE: LONG}))).num_rows
