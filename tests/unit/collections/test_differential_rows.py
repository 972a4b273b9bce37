"""Rows of changes and runs of them, compared with brute force; and damaged runs."""

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType, TimestampType

from falkirk.errors import HomeError
from falkirk.steps.differential import runs
from falkirk.steps.differential.files import FolderFiles
from falkirk.steps.differential.rows import DIFFERENCE, HASH, consolidate, join_rows, lub, rounds, split_by_time
from falkirk.steps.differential.schemas import arrow_of
from falkirk.steps.differential.state import LoopState, sweep
from falkirk.steps.differential.task import FileName

Row = tuple[int, str | None, int, int, int]
rows = st.lists(
    st.tuples(
        st.integers(-2, 2), st.sampled_from([None, "a", "b"]), st.integers(0, 2), st.integers(0, 1), st.integers(-2, 2)
    ),
    max_size=12,
)


def table(given_rows: list[Row], value: str = "k") -> pa.Table:
    names = [HASH, value, *rounds(2), DIFFERENCE]
    types = [pa.int64(), pa.string(), pa.int32(), pa.int32(), pa.int64()]
    columns = list(zip(*given_rows, strict=True)) or [()] * len(types)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


def listed(of: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in of.to_pylist()]


@settings(deadline=None)
@given(rows)
def test_rows_are_added_up(some: list[Row]) -> None:
    wanted: Counter[tuple[object, ...]] = Counter()
    for *row, more in some:
        wanted[tuple(row)] += more
    found = listed(consolidate(table(some)))
    assert sorted(found, key=repr) == sorted(((*r, n) for r, n in wanted.items() if n), key=repr)


@settings(deadline=None)
@given(rows)
def test_rows_are_split_by_their_time(some: list[Row]) -> None:
    found = split_by_time(table(some), 2)
    assert found.keys() == {row[2:4] for row in some}
    for time, those in found.items():
        assert listed(those) == [row for row in some if row[2:4] == time]
    outside = table(some).drop_columns(rounds(2))
    assert list(split_by_time(outside, 0)) == [()] * bool(some)


@settings(deadline=None)
@given(rows, rows)
def test_pairs_are_at_the_earliest_time_after_both(left: list[Row], right: list[Row]) -> None:
    found = join_rows(table(left), table(right), ["k"], 2).select([HASH, "k", *rounds(2), DIFFERENCE])
    wanted = [
        (*one[:2], *lub(one[2:4], other[2:4]), one[4] * other[4])
        for one in left
        for other in right
        if one[:2] == other[:2] and one[1] is not None
    ]
    assert sorted(listed(found)) == sorted(wanted)


@settings(deadline=None, max_examples=50)
@given(st.lists(rows, max_size=3), st.sets(st.integers(-3, 3)))
def test_the_keys_that_are_asked_for_are_read(
    tmp_path_factory: pytest.TempPathFactory, some: list[list[Row]], hashes: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    files, names = FolderFiles(str(folder)), [f"{number}.arrow" for number in range(len(some))]
    for name, part in zip(names, some, strict=True):
        files.write_run(name, table(part))
    found = runs.rows_of_keys(map(files.load, names), np.array(sorted(hashes), dtype=np.int64), table([]).schema)
    assert Counter(listed(found)) == Counter(row for part in some for row in part if row[0] in hashes)
    assert sorted(path.name for path in folder.iterdir()) == names, "nothing unfinished is left behind"


def test_a_run_that_is_missing_or_torn_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with pytest.raises(HomeError) as missing:
        runs.load_run(path)
    assert (missing.value.condition, missing.value.where) == ("STATE_DAMAGED", path)
    FolderFiles(str(tmp_path)).write_run(path.name, table([(n, "a", 0, 0, 1) for n in range(20)]))
    whole = path.read_bytes()
    for length in {0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 9, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(HomeError) as torn:
            FolderFiles(str(tmp_path)).load(path.name)
        assert torn.value.condition == "STATE_DAMAGED", length
        assert "falkirk rollback" in str(torn.value)


def test_what_a_run_says_of_itself_is_damaged(tmp_path: Path) -> None:
    """Damage in the first or last bytes of a file, which are no rows, is reported or does no harm."""
    path, draw = tmp_path / "run.arrow", random.Random(1)
    FolderFiles(str(tmp_path)).write_run(path.name, table([(n, "a", 0, 0, 1) for n in range(20)]))
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 30)):
            place = draw.choice([draw.randrange(8), draw.randrange(len(whole) - 600, len(whole))])
            damaged[place] = draw.randrange(256)
        path.write_bytes(damaged)
        with suppress(HomeError):
            runs.load_run(path)


def test_the_name_of_a_file_says_what_it_is() -> None:
    for time in ((), (3,), (0, 12)):
        name = FileName(holder="kept-3-joined", what="deferred1", time=time, partition=4, attempt="2f", rows=9)
        assert FileName.parse(str(name)) == name


def test_what_no_state_needs_is_swept(tmp_path: Path) -> None:
    state = LoopState(
        traces={("1-joined", "input0"): ("a/x.arrow",)}, left={("2-variable", "deferred0", (0,)): ("b/y.arrow",)}
    )
    for name in ("a/x.arrow", "a/old.arrow", "b/y.arrow", "c/d/z.arrow"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    sweep(tmp_path, state.files())
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")} == {"a", "a/x.arrow", "b", "b/y.arrow"}


def test_a_column_can_be_a_time() -> None:
    """Arrow needs a time zone for it, and PySpark gives it none unless it is asked to."""
    schema = arrow_of(StructType([StructField("at", TimestampType())]), 0)
    assert schema.field("at").type == pa.timestamp("us", tz="UTC")
