"""The checker divides a run into parts on disk. Its verdict always equals that on the whole run in memory."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.checker import Guarantee, InputRow, Kind, Model, OutputRow, RowPlace, Space, Verdict, check_keyed
from falkirk.checker.divide import divide
from falkirk.checker.spill import SpillFiles
from falkirk.errors import MachineError
from tests.check_runs import CORRUPTIONS, INDEX, MODELS, Run, apply, placed, runs
from tests.check_whole import check_whole
from tests.strategies import examples

#: Rows are written to disk at once, and a part of a few rows is divided again.
TINY = Space(memory_bytes=1 << 12, parts=2, linked_rows=1000)


def assert_agree(inputs: list[InputRow], outputs: list[OutputRow], model: Model[Any], space: Space) -> Verdict:
    """Check that the divided checker and the simple one agree in every respect; return the verdict."""
    verdict = check_keyed(inputs, outputs, model, space=space, anomalies_shown=1000)
    whole = check_whole(inputs, outputs, model)
    counts = verdict.counts
    assert dict(verdict.holds) == whole.holds
    assert {
        Kind.DUPLICATE: counts.duplicates,
        Kind.REPEATED_INPUT: counts.repeated_inputs,
        Kind.LOST: counts.lost,
        Kind.UNEXPLAINED: counts.unexplained,
        Kind.FORGOTTEN: counts.forgotten,
        Kind.BROKEN_SEQUENCE: counts.broken_sequences,
        Kind.PARTIAL: counts.partial,
    } == {kind: whole.kinds.get(kind, 0) for kind in list(Kind)[:7]}
    assert {(a.kind, a.key, a.inputs, a.outputs, a.explanation) for a in verdict.anomalies} == whole.anomalies
    assert counts.undecided == whole.undecided
    assert (verdict.consistency.holds, verdict.consistency.keys) == (whole.consistent, whole.inconsistent_keys)
    return verdict


@st.composite
def broken_runs(draw: st.DrawFn, model: Model[Any]) -> tuple[Run, list[OutputRow]]:
    """Draw a run with additional inputs that were never applied, and with corrupted outputs."""
    run = draw(runs(model, keys="abcd", records_min=1))
    records = sorted({row.place.record for row in run.inputs})
    gone = set(draw(st.lists(st.sampled_from(records), max_size=3)))
    rows = [row for row in run.order if row.place.record not in gone]
    rows = [row for row in rows if draw(st.integers(0, 9)) != 9]
    found = apply(model, rows)
    for corruption in draw(st.lists(st.sampled_from(sorted(CORRUPTIONS)), max_size=2)):
        if found or corruption == "stray":
            found = placed(CORRUPTIONS[corruption](draw(st.data()), found))
    return run, found


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_a_divided_run_has_the_verdict_of_the_whole(name: str, data: st.DataObject) -> None:
    run, found = data.draw(broken_runs(MODELS[name]))
    assert_agree(run.inputs, found, MODELS[name], TINY)


def rows_of(records: int, keys: int, seed: int) -> list[InputRow]:
    """Return records of one partition with up to three derivatives each."""
    dice = random.Random(seed)
    return [
        InputRow(key=f"k{key}", place=RowPlace("in", 0, offset, sub), row={"k": f"k{key}", "page": f"{offset}"})
        for offset in range(records)
        for sub, key in enumerate(dice.sample(range(keys), dice.randint(1, 3)))
    ]


@pytest.mark.parametrize("seed", range(6))
def test_inputs_lost_and_parts_of_inputs_lost_are_told_apart_across_parts(seed: int) -> None:
    # Outputs show only the count. It is open which row of a key was lost, and the choice connects keys.
    model, dice = MODELS["count"], random.Random(seed)
    rows = [InputRow(key=r.key, place=r.place, row={**r.row, "x": 1}) for r in rows_of(120, 40, seed)]
    gone = set(dice.sample(range(120), 4))
    whole = [row for row in rows if row.place.offset not in gone]
    verdict = assert_agree(rows, apply(model, whole), model, TINY)
    assert verdict.counts.partial == 0
    assert verdict.counts.lost == len(rows) - len(whole)
    several = [row for row in whole if sum(other.place.record == row.place.record for other in rows) > 1]
    less = dice.choice(several)
    assert_agree(rows, apply(model, [row for row in whole if row is not less]), model, TINY)


def test_a_part_of_an_input_that_is_lost_is_named_across_parts() -> None:
    rows = rows_of(100, 30, seed=3)
    less = next(row for row in rows if row.place.sub_index == 2)
    verdict = assert_agree(rows, apply(INDEX, [row for row in rows if row is not less]), INDEX, TINY)
    [partial] = [each for each in verdict.anomalies if each.kind is Kind.PARTIAL]
    assert partial.inputs == (less.place,)
    unshown = check_keyed(rows, apply(INDEX, [row for row in rows if row is not less]), INDEX, anomalies_shown=0)
    assert (unshown.guarantee, unshown.counts.partial, unshown.anomalies) == (verdict.guarantee, 1, ())


def test_what_is_linked_and_has_no_room_stays_open_and_does_not_pass() -> None:
    model = MODELS["count"]
    rows = [InputRow(key=r.key, place=r.place, row={**r.row, "x": 1}) for r in rows_of(60, 10, seed=5)]
    found = apply(model, [row for row in rows if row.place.offset != 20])
    assert check_keyed(rows, found, model, space=TINY).guarantee is Guarantee.AT_MOST_ONCE
    verdict = check_keyed(rows, found, model, space=replace(TINY, linked_rows=10))
    assert verdict.guarantee is Guarantee.UNDECIDED
    assert verdict.counts.partial == 0
    assert verdict.counts.undecided == len(verdict.undecided) > 0
    assert not verdict.satisfies(Guarantee.AT_MOST_ONCE)


def test_parts_keep_the_rows_of_a_key_together_and_a_large_part_is_divided_again(tmp_path: Path) -> None:
    rows = rows_of(2000, 100, seed=1)
    space = Space(memory_bytes=1 << 18, parts=2, folder=tmp_path)
    with SpillFiles(space) as piles:
        parts = divide(rows, apply(INDEX, rows), piles, space)
        assert len(parts) > 8
        assert max(part.bytes for part in parts) < 4 * space.part_bytes < sum(part.bytes for part in parts) / 4
        keys = [{row.key for row in part.inputs()} | {row.key for row in part.outputs()} for part in parts]
        assert sum(map(len, keys)) == len(set.union(*keys)) == 100
        found = [row for part in parts for row in part.inputs()]
        assert sorted(found, key=lambda row: row.place) == rows
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_pile_is_read_whole_while_others_are_written() -> None:
    with SpillFiles(Space(memory_bytes=1 << 20)) as piles:
        one, other = piles.several(2)
        one.extend(range(300))  # some in its file, some waiting
        reading = iter(one)
        first = next(reading)
        other.extend(range(20_000))
        assert not one.waiting
        assert [first, *reading] == list(one) == list(range(300))


def test_one_key_that_is_too_large_is_judged_all_the_same() -> None:
    rows = [InputRow(key="k", place=RowPlace("in", 0, n), row={"k": "k", "page": str(n)}) for n in range(500)]
    verdict = check_keyed(rows, apply(INDEX, rows), INDEX, space=TINY)
    assert verdict.guarantee == "exactly-once"
    assert verdict.counts.keys == 1


def test_a_small_run_touches_no_disk(tmp_path: Path) -> None:
    rows = rows_of(100, 10, seed=2)
    space = Space(folder=tmp_path / "not there")
    assert check_keyed(rows, apply(INDEX, rows), INDEX, space=space).guarantee == "exactly-once"
    with pytest.raises(MachineError) as refusal:
        check_keyed(rows, apply(INDEX, rows), INDEX, space=replace(space, memory_bytes=1 << 12))
    assert refusal.value.condition == "FOLDER_UNUSABLE"
