"""Operators with memory: after each epoch, and at every time, the sum of their output is the result of their input."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falkirk.steps.differential import operators
from falkirk.steps.differential.operators import Aggregate, AggregateKind, Group, Join, Reduce, Top
from falkirk.steps.differential.ordered import FirstRows, Order, first_of, sorted_by_hash
from falkirk.steps.differential.rows import DIFFERENCE, HASH, Hashes, LoopTime, consolidate, distinct, hashes, rounds
from tests.strategies import examples

ROUNDS_MAX = 3
STRING, LONG, DOUBLE = pa.string(), pa.int64(), pa.float64()
Change = tuple[LoopTime, tuple[Any, ...], int]
"""A time, a row, and the change of its count."""
Epochs = list[list[Change]]
Rows = Counter[tuple[Any, ...]]

KEYS = {STRING: [None, "", "a", "b"], LONG: [None, 0, 7], DOUBLE: [None, 0.5, -1.5]}
VALUES = {STRING: [None, "x", "yy"], LONG: [None, -1, 2, 5], DOUBLE: [None, 0.25, -4.0, 3.0]}


def hash_of(key: tuple[Any, ...]) -> int:
    """Return a hash that many keys share."""
    return sum(len(str(k)) for k in key) % 2


def schema(depth: int, **types: pa.DataType) -> pa.Schema:
    fields = {HASH: pa.int64(), **types, **{r: pa.int32() for r in rounds(depth)}, DIFFERENCE: pa.int64()}
    return pa.schema(list(fields.items()))


def table(changes: Iterable[Change], keys: int, like: pa.Schema) -> pa.Table:
    """Return changes as an operator receives them. Args: keys: the number of first columns that are the key."""
    rows = [(hash_of(row[:keys]), *row, *time, count) for time, row, count in changes]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(like)
    return pa.table([pa.array(c, t) for c, t in zip(columns, like.types, strict=True)], schema=like)


def changes_of(rows: pa.Table, depth: int) -> Iterator[Change]:
    """Return an operator's rows as changes, without their hash."""
    for hashed, *row in zip(*(c.to_pylist() for c in rows.columns), strict=True):
        values, time, count = row[: len(row) - depth - 1], row[len(row) - depth - 1 : -1], row[-1]
        assert isinstance(hashed, int)
        yield tuple(time), tuple(values), count


def up_to(changes: Iterable[Change], time: LoopTime) -> Rows:
    """Return the count of each row at a time."""
    found: Rows = Counter()
    for then, row, count in changes:
        if all(a <= b for a, b in zip(then, time, strict=True)):
            found[row] += count
    return Counter({row: count for row, count in found.items() if count})


class Memory:
    """A trace in memory."""

    def __init__(self, like: pa.Schema, order: Order | None = None) -> None:
        self.all, self._order, self._runs = like.empty_table(), order, list[pa.Table]()

    def first(self, keys: Hashes, order: Order, most: int) -> FirstRows:
        assert order == self._order
        return first_of(self._runs, keys, order, most, self.all.schema)

    def rows(self, keys: object) -> pa.Table:
        assert list(keys) == sorted(set(keys)), "hashes come in order, each once"  # type: ignore[call-overload]
        return self.all.filter(pa.array(np.isin(self.all.column(HASH).to_numpy(), keys)))

    def add(self, rows: pa.Table) -> None:
        self.all = pa.concat_tables([self.all, rows])
        self._runs.append(sorted_by_hash(rows, self._order))

    def merge(self) -> None:
        self.all = consolidate(self.all)
        self._runs = [sorted_by_hash(self.all, self._order)]


def epochs_of(rows: st.SearchStrategy[tuple[Any, ...]], depth: int) -> st.SearchStrategy[Epochs]:
    """Return a strategy for the changes of each epoch."""
    times = st.tuples(*[st.integers(0, ROUNDS_MAX - 1)] * depth)
    change = st.tuples(times, rows, st.sampled_from([-2, -1, 1, 1, 1, 2]))
    return st.lists(st.lists(change, max_size=7), min_size=1, max_size=4)


def rows_of(*columns: tuple[pa.DataType, dict[pa.DataType, list[Any]]]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*[st.sampled_from(values[kind]) for kind, values in columns])


def all_times(depth: int) -> Iterator[LoopTime]:
    return product(range(ROUNDS_MAX), repeat=depth)


def run_reduce(operator: Reduce, types: dict[str, pa.DataType], epochs: Epochs, depth: int, *, merge: bool) -> Iterator[
    tuple[list[Change], list[Change]]
]:  # fmt: skip
    """Process epochs in the order of the times for which rows wait. Yield all inputs and outputs so far."""
    keys, given_as = len(operator.keys), schema(depth, **types)
    said_as = schema(depth, **{n: types.get(n, LONG) for n in (*operator.keys, *operator.results)})
    names = [HASH, *operator.keys]
    inputs, said, put = Memory(given_as, operator.order), Memory(said_as), []
    for epoch in epochs:
        waiting: dict[LoopTime, list[pa.Table]] = {}
        arrived = {time: [c for c in epoch if c[0] == time] for time, _, _ in epoch}
        while arrived or waiting:
            now = min([*arrived, *waiting])
            news = table(arrived.pop(now, []), keys, given_as)
            due = pa.concat_tables([given_as.empty_table().select(names), *waiting.pop(now, [])])
            work = operator.work(news, distinct(due, names), inputs, said, now, said_as)
            assert all(time > now for time in work.due), "what is past does not change any more"
            assert work.out.schema == said_as
            inputs.add(work.inputs[0])
            said.add(work.out)
            for time, some in work.due.items():
                waiting.setdefault(time, []).append(some)
        put += epoch
        if merge:
            inputs.merge()
            said.merge()
        yield put, list(changes_of(said.all, depth))


def check_reduce(
    operator: Reduce, types: dict[str, pa.DataType], epochs: Epochs, depth: int, comes_to: Callable[[Rows], Rows],
    *, merge: bool = False,
) -> None:  # fmt: skip
    for put, said in run_reduce(operator, types, epochs, depth, merge=merge):
        for time in all_times(depth):
            assert up_to(said, time) == comes_to(up_to(put, time)), time


def there(rows: Rows) -> Rows:
    """Return the rows with positive counts."""
    return Counter({row: count for row, count in rows.items() if count > 0})


def by_key(rows: Rows, keys: int) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row, count in there(rows).items():
        found.setdefault(row[:keys], Counter())[row[keys:]] += count
    return found


def aggregated(kind: AggregateKind, values: Counter[Any]) -> Any:
    if kind == "count":
        return values.total()
    known = [value for value in values.elements() if value is not None]
    return {"sum": sum, "min": min, "max": max}[kind](known) if known else None  # type: ignore[operator]


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("kind", ["count", "sum", "min", "max"])
@pytest.mark.parametrize("value", [STRING, LONG, DOUBLE], ids=str)
def test_a_group_comes_to_its_aggregate_at_every_time(kind: AggregateKind, value: pa.DataType, depth: int) -> None:
    if kind == "sum" and value == STRING:
        return
    how = Group(aggregates=(Aggregate(kind="count", column="", name="n"), Aggregate(kind=kind, column="v", name="v")))
    operator = Reduce(keys=("k", "l"), values=("v",), results=("n", "v"), how=how)
    types = {"k": STRING, "l": LONG, "v": LONG if kind == "count" else value}

    def comes_to(rows: Rows) -> Rows:
        groups = by_key(rows, 2).items()
        return Counter(
            (*key, some.total(), aggregated(kind, Counter(v for (v,) in some.elements()))) for key, some in groups
        )

    @settings(deadline=None, max_examples=examples(3))
    @given(epochs_of(rows_of((STRING, KEYS), (LONG, KEYS), (types["v"], VALUES)), depth), st.booleans())
    def check(epochs: Epochs, merge: bool) -> None:
        check_reduce(operator, types, epochs, depth, comes_to, merge=merge)

    check()


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize(
    "types", [{"k": STRING, "l": LONG, "v": LONG}, {"k": LONG, "l": LONG, "v": pa.int8()}], ids=str
)
@pytest.mark.parametrize("looks_at", [1, 2])
def test_the_least_is_found_in_the_first_rows(
    types: dict[str, pa.DataType], kind: AggregateKind, depth: int, looks_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most keys have a unique hash here, and a trace has several runs. Some values are null."""
    monkeypatch.setattr(operators, "_FIRST", looks_at)
    monkeypatch.setattr(operators, "_MORE", 2)
    monkeypatch.setattr("tests.unit.collections.test_differential_operators.hash_of", lambda key: len(str(key)))
    how = Group(aggregates=(Aggregate(kind=kind, column="v", name="v"),))
    operator = Reduce(keys=("k", "l"), values=("v",), results=("v",), how=how)
    assert operator.order is not None

    def comes_to(rows: Rows) -> Rows:
        groups = by_key(rows, 2).items()
        return Counter((*key, aggregated(kind, Counter(v for (v,) in some.elements()))) for key, some in groups)

    numbers = st.sampled_from([*range(-4, 5), 127, -128, *([None] if looks_at > 1 else [])])
    keys = [st.sampled_from(KEYS[types[k]]) for k in ("k", "l")]
    key, first, later = ("a" if types["k"] == STRING else 0, 7), (0,) * depth, (1,) * depth
    sign = 1 if kind == "min" else -1

    @settings(deadline=None, max_examples=examples(5))
    @given(epochs_of(st.tuples(*keys, numbers), depth), st.booleans())
    @example([[(first, (*key, v), 1) for v in range(7)]], False)
    # A result of a later time, from rows that are not read now, does not follow from the current result.
    @example(
        [[(first, (*key, sign), 1), (later, (*key, sign), -1), (later, (*key, 5 * sign), 1)], [(first, (*key, 0), 1)]],
        False,
    )
    def check(epochs: Epochs, merge: bool) -> None:
        check_reduce(operator, types, epochs, depth, comes_to, merge=merge)

    check()


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("key", [STRING, LONG, DOUBLE], ids=str)
def test_distinct_rows_are_there_once_at_every_time(key: pa.DataType, depth: int) -> None:
    operator = Reduce(keys=("k", "l"), values=(), results=(), how=Group())

    @settings(deadline=None, max_examples=examples(5))
    @given(epochs_of(rows_of((key, KEYS), (LONG, KEYS)), depth), st.booleans())
    def check(epochs: Epochs, merge: bool) -> None:
        check_reduce(operator, {"k": key, "l": LONG}, epochs, depth, once, merge=merge)

    check()


def once(rows: Rows) -> Rows:
    return Counter(there(rows).keys())


def first_rows(rows: Rows, wanted: int, falls: bool) -> Rows:
    """Return the first rows of each key, by the second of two values, then by the first; null is least."""
    found: Rows = Counter()
    for key, some in by_key(rows, 1).items():
        ordered = sorted(some.elements(), key=lambda r: (r[0] is not None, r[0] or ""))
        ordered.sort(key=lambda r: ((r[1] is None) == falls, (-r[1] if falls else r[1]) if r[1] is not None else 0))
        found.update((*key, *row) for row in ordered[:wanted])
    return found


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("falls", [True, False])
@pytest.mark.parametrize("key", [STRING, LONG, DOUBLE], ids=str)
def test_top_is_the_first_rows_at_every_time(key: pa.DataType, falls: bool, depth: int) -> None:
    types = {"k": key, "name": STRING, "v": LONG}
    operator = Reduce(keys=("k",), values=("name", "v"), results=("name", "v"), how=Top(by=(("v", falls),), rows=2))

    @settings(deadline=None, max_examples=examples(3))
    @given(epochs_of(rows_of((key, KEYS), (STRING, VALUES), (LONG, VALUES)), depth), st.booleans())
    def check(epochs: Epochs, merge: bool) -> None:
        check_reduce(operator, types, epochs, depth, lambda rows: first_rows(rows, 2, falls), merge=merge)

    check()


def test_without_keys_all_rows_are_one_group() -> None:
    def sums(rows: Rows) -> Rows:
        values = [value for (value,) in there(rows).elements()]
        return Counter([(sum(values),)] if values else [])

    def greatest(rows: Rows) -> Rows:
        return Counter([max(there(rows))] if there(rows) else [])

    how = Group(aggregates=(Aggregate(kind="sum", column="v", name="v"),))
    epochs: Epochs = [[((1,), (2,), 3), ((0,), (5,), 1)], [((0,), (2,), -3)], [((0,), (5,), -1)]]
    check_reduce(Reduce(keys=(), values=("v",), results=("v",), how=how), {"v": LONG}, epochs, 1, sums)
    top = Reduce(keys=(), values=("v",), results=("v",), how=Top(by=(("v", True),), rows=1))
    check_reduce(top, {"v": LONG}, epochs, 1, greatest)


TOLERANCE = 1.0
SETTLING = Reduce(
    keys=("k",), values=("v",), results=("v",),
    how=Group(aggregates=(Aggregate(kind="sum", column="v", name="v"),), tolerance=TOLERANCE),
)  # fmt: skip


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_has_settled_is_within_its_tolerance_at_every_time(depth: int) -> None:
    @settings(deadline=None, max_examples=examples(8))
    @given(epochs_of(rows_of((STRING, KEYS), (DOUBLE, {DOUBLE: [0.25, -0.5, 0.75, 8.0]})), depth), st.booleans())
    def check(epochs: Epochs, merge: bool) -> None:
        for put, said in run_reduce(SETTLING, {"k": STRING, "v": DOUBLE}, epochs, depth, merge=merge):
            for time in all_times(depth):
                sums = {key: sum(v for (v,) in some.elements()) for key, some in by_key(up_to(put, time), 1).items()}
                found = up_to(said, time)
                assert set(found.values()) <= {1}
                assert {(key,) for key, _ in found} == set(sums)
                assert all(abs(sums[key,] - value) <= TOLERANCE for key, value in found)

    check()


@pytest.mark.parametrize("key", ["a", None])
def test_what_moves_by_less_than_the_tolerance_is_not_said_again(key: str | None) -> None:
    epochs: Epochs = [[((), (key, 4.0), 1)], [((), (key, 0.5), 1)], [((), (key, 0.75), 1)]]
    said = [said for _, said in run_reduce(SETTLING, {"k": STRING, "v": DOUBLE}, epochs, 0, merge=False)]
    assert said[0] == said[1] == [((), (key, 4.0), 1)]
    assert up_to(said[2], ()) == {(key, 5.25): 1}


def test_a_residue_of_what_has_settled_is_still_known_when_what_it_came_of_is_merged_away() -> None:
    epochs: Epochs = [
        [((0,), ("a", 0.0), 1), ((2,), ("a", 1.25), 1), ((2,), ("a", 0.5), 1)],
        [((2,), ("a", 1.25), -1)],
        [((2,), ("a", 0.5), -1)],
        [((1,), ("a", 40.0), 1)],
    ]
    *_, (_, said) = run_reduce(SETTLING, {"k": STRING, "v": DOUBLE}, epochs, 1, merge=True)
    assert up_to(said, (2,)) == {("a", 40.0): 1}


def run_join(operator: Join, types: tuple[dict[str, pa.DataType], ...], sides: list[Epochs], depth: int) -> Iterator[
    tuple[list[list[Change]], list[Change]]
]:  # fmt: skip
    """Process epochs of both sides. Yield all inputs and outputs so far."""
    like = [schema(depth, **t) for t in types]
    inputs, said = [Memory(s) for s in like], []
    put: list[list[Change]] = [[], []]
    for epoch in zip(*sides, strict=False):
        for now in sorted({time for side in epoch for time, _, _ in side}):
            changes = [[c for c in side if c[0] == now] for side in epoch]
            news = [table(c, len(operator.keys), s) for c, s in zip(changes, like, strict=True)]
            work = operator.work(news, inputs, depth)
            assert not work.due
            said += list(changes_of(work.out, depth))
            for trace, rows in zip(inputs, work.inputs, strict=True):
                trace.add(rows)
        for side, changes in zip(put, epoch, strict=True):
            side += changes
        yield put, said


def pairs(left: Rows, right: Rows, keys: int) -> Rows:
    """Return all pairs of rows with equal keys; null equals no key."""
    found: Rows = Counter()
    for (one, times), (other, more) in product(left.items(), right.items()):
        if one[:keys] == other[:keys] and None not in one[:keys]:
            found[(*one, *other[keys:])] += times * more
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("key", [STRING, LONG, DOUBLE], ids=str)
def test_a_join_is_all_pairs_at_every_time(key: pa.DataType, depth: int) -> None:
    operator = Join(keys=("k", "l"), left=("v",), right=("w", "x"))
    types = ({"k": key, "l": LONG, "v": STRING}, {"k": key, "l": LONG, "w": DOUBLE, "x": LONG})
    left = rows_of((key, KEYS), (LONG, KEYS), (STRING, VALUES))
    right = rows_of((key, KEYS), (LONG, KEYS), (DOUBLE, VALUES), (LONG, VALUES))

    @settings(deadline=None, max_examples=examples(8))
    @given(epochs_of(left, depth), epochs_of(right, depth))
    @example([[]], [[]])
    def check(ones: Epochs, others: Epochs) -> None:
        for (lefts, rights), said in run_join(operator, types, [ones, others], depth):
            for time in all_times(depth):
                assert up_to(said, time) == pairs(up_to(lefts, time), up_to(rights, time), 2)

    check()


def test_a_join_remembers_what_is_new_added_up() -> None:
    operator = Join(keys=("k",), left=(), right=())
    like = schema(1, k=LONG)
    news = table([((0,), (1,), 1), ((0,), (1,), -1), ((0,), (2,), 1)], 1, like)
    work = operator.work([news, like.empty_table()], [Memory(like), Memory(like)], 1)
    assert list(changes_of(work.inputs[0], 1)) == [((0,), (2,), 1)]
    assert hashes(work.inputs[0]).tolist() == [hash_of((2,))]


def test_without_wakes_a_change_that_meets_an_earlier_one_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Reduce(keys=("k",), values=(), results=(), how=Group())
    epochs: Epochs = [[((0, 1), ("a",), 1)], [((1, 0), ("a",), 1)]]
    check_reduce(operator, {"k": STRING}, epochs, 2, once)
    monkeypatch.setattr(operators, "_due_keys", lambda *_: {})
    with pytest.raises(AssertionError):
        check_reduce(operator, {"k": STRING}, epochs, 2, once)
