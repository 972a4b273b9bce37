"""Mechanisms of the operators, switched off one at a time: the comparison with brute force notices each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from falkirk.steps.differential import operators, rows
from falkirk.steps.differential.operators import Aggregate, Group, Join, Reduce
from falkirk.steps.differential.state import LoopState, sweep
from tests.unit.collections.test_differential_operators import (
    LONG,
    STRING,
    Epochs,
    Memory,
    Rows,
    by_key,
    check_reduce,
    pairs,
    run_join,
    up_to,
)

MIN = Reduce(
    keys=("k",), values=("v",), results=("v",), how=Group(aggregates=(Aggregate(kind="min", column="v", name="v"),))
)
TYPES = {"k": STRING, "v": LONG}
PAIRS = Join(keys=("k",), left=("v",), right=("w",))
#: Rows are added, replaced by lesser ones, and removed, in a loop; one epoch meets another at a later round.
EPOCHS: Epochs = [
    [((0,), ("a", 5), 1), ((1,), ("a", 3), 1)],
    [((0,), ("a", 4), 1)],
    [((0,), ("a", 5), -1), ((1,), ("a", 3), -1)],
]
#: Two loops: the times of two changes of which neither precedes the other.
CROSSED: Epochs = [[((0, 1), ("a", 5), 1)], [((1, 0), ("a", 3), 1)]]


def least(some: Rows) -> Rows:
    return Rows({(*key, min(v for (v,) in values.elements())): 1 for key, values in by_key(some, 1).items()})


def reduced(epochs: Epochs, depth: int) -> None:
    check_reduce(MIN, TYPES, epochs, depth, least)


def joined(epochs: Epochs, depth: int) -> None:
    """Join changes with themselves, one epoch later."""
    sides = [[*epochs, []], [[], *epochs]]
    for (lefts, rights), said in run_join(PAIRS, (TYPES, {"k": STRING, "w": LONG}), sides, depth):
        for time in [(a, b)[:depth] for a in range(2) for b in range(2)]:
            assert up_to(said, time) == pairs(up_to(lefts, time), up_to(rights, time), 1)


def nothing(self: Memory, keys: object) -> pa.Table:
    return self.all.slice(0, 0)


def everything(table: pa.Table, now: tuple[int, ...]) -> Any:
    return pa.array(np.ones(table.num_rows, dtype=bool))


def later_one(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return max(one, other)


OFF: dict[str, tuple[Callable[[Epochs, int], None], Epochs, int, object, str, object]] = {
    "the input is forgotten": (reduced, EPOCHS, 1, Memory, "rows", nothing),
    "keys are not due": (reduced, CROSSED, 2, operators, "_due_keys", lambda *_: {}),
    "times in the order of numbers": (reduced, CROSSED, 2, operators, "lub", later_one),
    "later rounds count already": (reduced, EPOCHS, 1, operators, "is_by", everything),
    "the output is not taken back": (reduced, EPOCHS, 1, operators.pc, "negate", lambda column: column),
    "the other side is forgotten": (joined, EPOCHS, 1, Memory, "rows", nothing),
    "pairs at the time of one side": (joined, CROSSED, 2, rows.pc, "max_element_wise", lambda one, other: one),
    "pairs without their number": (joined, EPOCHS, 1, rows, "product_of", lambda one, other: one),
}


@pytest.mark.parametrize("name", OFF)
def test_brute_force_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, epochs, depth, where, what, instead = OFF[name]
    run(epochs, depth)
    monkeypatch.setattr(where, what, instead)
    with pytest.raises(AssertionError):
        run(epochs, depth)


def test_a_file_that_an_older_state_needs_is_swept_unless_it_is_named(tmp_path: Path) -> None:
    """Selective rollback depends on this: a state is a list of files, and the files of all retained states stay."""
    older = LoopState(traces={("0-reduced", "input0"): ("1/a.arrow",)})
    newer = LoopState(traces={("0-reduced", "input0"): ("2/b.arrow",)})
    for state in (older, newer):
        for path in state.files():
            (tmp_path / path).parent.mkdir()
            (tmp_path / path).write_bytes(b"rows")
    sweep(tmp_path, older.files() | newer.files())
    assert all((tmp_path / path).exists() for state in (older, newer) for path in state.files())
    sweep(tmp_path, newer.files())
    assert not any((tmp_path / path).exists() for path in older.files())
    assert not (tmp_path / "1").exists()
