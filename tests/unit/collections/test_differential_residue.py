"""Residues: 0 once all rows that were left out have cancelled, in any order, and otherwise another number."""

import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from falkirk.steps.differential.residue import added_up, residue
from falkirk.steps.differential.rows import DIFFERENCE, HASH, rounds
from falkirk.steps.differential.state import LoopState
from falkirk.steps.differential.task import FileName

LONG = pa.int64()
#: Some values of each type that a state may have.
VALUES: dict[pa.DataType, list[object]] = {
    LONG: [None, 0, 1, -5, 2**62], pa.int32(): [None, 0, 7], pa.int8(): [0, -3], pa.bool_(): [None, True, False],
    pa.string(): [None, "", "a", "ä€"], pa.float64(): [None, 0.0, 1.5, float("nan")], pa.float32(): [0.0, 0.25],
    pa.decimal128(38, 2): [None, Decimal("1.25"), Decimal("-9")], pa.binary(): [None, b"", b"\xff\x00"],
    pa.date32(): [None, date(2020, 1, 2)], pa.timestamp("us", "UTC"): [datetime(2020, 1, 1), None],
    pa.timestamp("us"): [datetime(2021, 1, 1)], pa.duration("us"): [None, timedelta(seconds=3)],
}  # fmt: skip


def table(values: list[object], of: pa.DataType, often: list[int]) -> pa.Table:
    columns = [pa.array([5] * len(values), LONG), pa.array(values, of), pa.array(range(len(values)), pa.int32())]
    return pa.table([*columns, pa.array(often, LONG)], names=[HASH, "v", *rounds(1), DIFFERENCE])


@pytest.mark.parametrize("of", VALUES, ids=str)
def test_what_is_taken_back_leaves_nothing(of: pa.DataType) -> None:
    draw, values = random.Random(3), VALUES[of] * 3
    often = [draw.choice([-2, -1, 1, 3]) for _ in values]
    some = residue(table(values, of, often))
    assert some, "it is there"
    order = draw.sample(range(len(values)), len(values))
    backwards = table([values[i] for i in order], of, [-often[i] for i in order])
    assert not added_up([some, residue(backwards[:2]), residue(backwards[2:])])
    assert added_up([some, residue(backwards[1:])]), "one is left"
    assert not residue(table([], of, []))


def test_which_column_is_null_makes_a_difference() -> None:
    a, b = pa.array([None, 1], LONG), pa.array([1, None], LONG)
    assert residue(pa.table({"a": a, "b": b, DIFFERENCE: [1, -1]}))
    assert not residue(pa.table({"a": a.take([0, 0]), "b": b.take([0, 0]), DIFFERENCE: [1, -1]}))


def test_it_is_in_the_name_of_a_file_and_in_the_state() -> None:
    name = FileName(holder="1-variable", what="deferred0", time=(2,), partition=1, rows=3, residue=2**64 - 1)
    assert FileName.parse(str(name)) == name
    state = LoopState(cut_short={("1-variable", "deferred0", (2,)): 2**64 - 1})
    assert LoopState.parse(state.text()) == state
