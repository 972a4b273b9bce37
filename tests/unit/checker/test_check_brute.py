"""The checker against brute force: on tiny runs, the test tries every order and every part of the inputs."""

from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.checker import Guarantee, InputRow, Model, OutputRow, Space, check_keyed
from falkirk.checker.content import content
from tests.check_runs import CORRUPTIONS, MODELS, apply, placed, runs
from tests.strategies import examples

Rows = tuple[InputRow, ...]


def orders(sources: tuple[Rows, ...]) -> Iterator[Rows]:
    """Yield every order that keeps the order of each source."""
    if not any(sources):
        yield ()
    for index, rows in enumerate(sources):
        if rows:
            for rest in orders((*sources[:index], rows[1:], *sources[index + 1 :])):
                yield (rows[0], *rest)


def sequences(rows: Iterable[InputRow], model: Model[Any]) -> set[tuple[Hashable, ...]]:
    """Return every sequence of outputs that rows of one key can give."""
    partitions: dict[int, list[InputRow]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        partitions.setdefault(row.place.partition, []).append(row)
    return {
        tuple(content(output.values) for output in apply(model, list(order)))
        for order in orders(tuple(map(tuple, partitions.values())))
    }


def explained(rows: list[InputRow], found: list[OutputRow], model: Model[Any], *, cut: bool = False) -> bool:
    """Return whether some order explains the outputs of each key; with `cut`, as the first of its outputs."""
    for key in {row.key for row in rows} | {output.key for output in found}:
        mine = tuple(content(output.values) for output in found if output.key == key)
        possible = sequences([row for row in rows if row.key == key], model)
        if not any(mine == (each[: len(mine)] if cut else each) for each in possible):
            return False
    return True


def part_of_inputs(rows: list[InputRow], found: list[OutputRow], model: Model[Any]) -> bool:
    """Return whether the outputs are those of some of the records, each with all its rows."""
    records = sorted({row.place.record for row in rows})
    return any(
        explained([row for row in rows if row.place.record in kept], found, model)
        for size in range(len(records) + 1)
        for kept in map(set, combinations(records, size))
    )


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_what_is_claimed_is_so_by_brute_force(name: str, data: st.DataObject) -> None:
    model = MODELS[name]
    run = data.draw(runs(model, partitions_max=2, records_max=3, records_min=1))
    records = sorted({row.place.record for row in run.inputs})
    gone = set(data.draw(st.lists(st.sampled_from(records), max_size=1)))
    found = apply(model, [row for row in run.order if row.place.record not in gone])
    for corruption in data.draw(st.lists(st.sampled_from(sorted(CORRUPTIONS)), max_size=2)):
        if found or corruption == "stray":
            found = placed(CORRUPTIONS[corruption](data, found))
    verdict = check_keyed(run.inputs, found, model, space=Space(memory_bytes=1 << 12, parts=2, linked_rows=1000))
    assert verdict.holds[Guarantee.EXACTLY_ONCE] is explained(run.inputs, found, model)
    assert verdict.consistency.holds is explained(run.inputs, found, model, cut=True)
    claimed = verdict.holds[Guarantee.AT_MOST_ONCE]
    assert claimed is None or claimed is part_of_inputs(run.inputs, found, model)
