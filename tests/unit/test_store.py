"""Store: every decision is there when it is read again, whoever wrote it meanwhile, or the store says that it can't
be used."""

import multiprocessing
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from falkirk.coordinator.store import RegionRecord, Store, TailRecord
from falkirk.errors import StoreError

RECORD = RegionRecord(
    fingerprint={"reads": "events", "keyed step": "count(word)"},
    start_offsets={"events": {0: 5, 1: 0, 10: 7}},
    partitions={"events": 11, "counts": 2},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of a test is."""
    return tmp_path / "decisions.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A fresh store."""
    opened = Store(path)
    yield opened
    opened.close()


def tail(commit: int, end: int, incarnation: int = 1) -> TailRecord:
    """Return an observation of one partition's end."""
    return TailRecord(valid_from_commit=commit, incarnation=incarnation, positions={"counts": {0: end, 11: 0}})


def test_a_region_is_found_again_by_another_process(store: Store, path: Path) -> None:
    assert store.region("counts") is None
    assert store.region_names() == ()
    store.create_region("counts", RECORD, {"counts": {0: 3}})
    store.create_region("a", RECORD, {})
    store.close()
    again = Store(path)
    assert again.region("counts") == RECORD
    assert again.region_names() == ("a", "counts")
    assert [(t.valid_from_commit, t.positions) for t in again.tails("counts")] == [(-1, {"counts": {0: 3}})]
    again.close()


def test_a_region_is_made_once_and_whole(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 3}})
    with pytest.raises(StoreError):
        store.create_region("counts", RECORD, {"counts": {0: 9}})
    assert [t.positions for t in store.tails("counts")] == [{"counts": {0: 3}}]


def test_incarnations_count_from_one_for_each_region(store: Store) -> None:
    assert store.open_incarnation("a", -1) == 1
    assert store.open_incarnation("a", 4) == 2
    assert store.open_incarnation("b", -1) == 1
    store.record_fence("a", 2, fence={"t": {0: 9}}, replayed_from={"t": {0: 3}}, suppressible=6)
    store.end_incarnation("a", 2, ended="stopped", unsafe=False)
    first, second = store.incarnations("a")
    assert (first.incarnation, first.restored_batch, first.fence, first.ended, first.unsafe) == (
        1,
        -1,
        None,
        None,
        False,
    )
    assert (second.restored_batch, second.suppressible, second.ended) == (4, 6, "stopped")
    assert second.fence == '{"t": {"0": 9}}'
    assert len(store.incarnations("b")) == 1
    assert store.incarnations("c") == ()


def test_a_producer_error_is_remembered_from_its_incarnation_on(store: Store) -> None:
    for number in range(1, 5):
        assert store.open_incarnation("a", number) == number
        store.end_incarnation("a", number, ended="x", unsafe=number == 2)
    assert [store.is_unsafe_since("a", n) for n in (1, 2, 3, 4, 5)] == [True, True, False, False, False]
    assert not store.is_unsafe_since("b", 1)


def test_observed_tails_replace_each_other_and_old_ones_go(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 0}})
    for commit in range(0, 300, 10):
        store.observe_tail("counts", tail(commit, commit))
        store.observe_tail("counts", tail(commit, commit + 5))
    store.observe_tail("other", tail(0, 1))
    kept = store.tails("counts")
    assert [t.valid_from_commit for t in kept] == [-1, *range(190, 300, 10)]
    assert [t.positions["counts"] for t in kept[1:]] == [{0: c + 5, 11: 0} for c in range(190, 300, 10)]
    assert len(store.tails("other")) == 1


def test_later_tails_are_forgotten_when_an_earlier_batch_is_restored(store: Store) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 0}})
    for commit in range(5):
        store.observe_tail("counts", tail(commit, commit))
        store.observe_tail("other", tail(commit, commit))
    store.forget_tails_after("counts", 2)
    assert [t.valid_from_commit for t in store.tails("counts")] == [-1, 0, 1, 2]
    store.forget_tails_after("counts", -1)
    assert [t.valid_from_commit for t in store.tails("counts")] == [-1]
    assert len(store.tails("other")) == 5


def test_skipped_input_grows_and_is_never_taken_back(store: Store) -> None:
    assert store.skipped_input("a") == ()
    store.skip_input("a", ((1, 0, 5), (0, 10, 20)))
    store.skip_input("b", ((0, 0, 1),))
    assert store.skipped_input("a") == ((0, 10, 20), (1, 0, 5))
    # A run that was killed before it released anything finds the same input waiting, and perhaps more of it.
    store.skip_input("a", ((0, 10, 20), (1, 0, 9)))
    assert store.skipped_input("a") == ((0, 10, 20), (1, 0, 9))
    store.skip_input("a", ((0, 10, 12),))
    assert store.skipped_input("a") == ((0, 10, 20), (1, 0, 9))
    store.skip_input("a", ((0, 30, 40),))
    store.skip_input("a", ())
    assert store.skipped_input("a") == ((0, 10, 20), (0, 30, 40), (1, 0, 9))
    assert store.skipped_input("b") == ((0, 0, 1),)


def test_voided_records_are_kept_once(store: Store) -> None:
    store.void("hop", ((1, 7), (0, 3), (0, 3)))
    store.void("hop", ((0, 3), (0, 2)))
    store.void("other", ())
    assert store.voided("hop") == ((0, 2), (0, 3), (1, 7))
    assert store.voided("other") == ()


def test_offsets_as_large_as_kafkas_fit(store: Store) -> None:
    last = 2**63 - 1
    store.skip_input("a", ((0, last - 1, last),))
    store.void("t", ((2**31 - 1, last),))
    store.observe_tail("a", tail(0, last))
    assert store.skipped_input("a") == ((0, last - 1, last),)
    assert store.voided("t") == ((2**31 - 1, last),)
    assert store.tails("a")[0].positions["counts"][0] == last


@pytest.mark.parametrize("version", ["0", "2", "one"])
def test_another_version_is_refused(path: Path, version: str) -> None:
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = ?", (version,))
    db.close()
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert caught.value.condition == "STORE_VERSION"
    assert (caught.value.parameters["found"], caught.value.parameters["expected"]) == (version, "1")
    assert caught.value.certainty == "definitely"


def test_a_damaged_file_is_named(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert caught.value.condition == "STORE_UNREADABLE"
    assert caught.value.where == path


def read_all(path: Path) -> None:
    """Read every region and tail of a store."""
    store = Store(path)
    try:
        for name in store.region_names():
            store.region(name)
            store.tails(name)
    finally:
        store.close()


def test_a_file_damaged_in_the_middle_is_named(path: Path) -> None:
    store = Store(path)
    for number in range(400):
        store.create_region(f"region-{number}", RECORD, {"counts": {p: p for p in range(40)}})
    store.close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\x5a" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        read_all(path)
    assert caught.value.condition == "STORE_UNREADABLE"


def test_a_table_that_is_gone_is_named(store: Store, path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE voided")
    db.close()
    with pytest.raises(StoreError) as caught:
        store.voided("t")
    assert caught.value.condition == "STORE_UNREADABLE"


def test_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Store(tmp_path / "missing" / "decisions.db")


# -- several writers ---------------------------------------------------------------------------------------------------

EACH = 40


def write(store: Store, writer: int) -> list[int]:
    """Do a writer's share: incarnations of one region that all share, and records of its own."""
    numbers = []
    for count in range(EACH):
        numbers.append(store.open_incarnation("shared", -1))
        store.observe_tail(f"region-{writer}", tail(count, count))
        store.void("hop", ((0, count), (1, count * 10 + writer)))
    return numbers


def write_in_process(path: Path, writer: int) -> list[int]:
    """Do a writer's share in a process of its own."""
    store = Store(path)
    try:
        return write(store, writer)
    finally:
        store.close()


def in_processes(path: Path) -> list[list[int]]:
    """Let three processes do their shares at once."""
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(write_in_process, [path] * 3, range(3)))


def judge(store: Store, numbers: list[list[int]]) -> None:
    """See that nobody's writes are lost and nobody got another's number."""
    assert sorted(n for own in numbers for n in own) == list(range(1, EACH * len(numbers) + 1))
    assert all(own == sorted(own) for own in numbers)
    for writer in range(len(numbers)):
        assert [t.valid_from_commit for t in store.tails(f"region-{writer}")] == list(range(EACH))
    assert len(store.voided("hop")) == EACH + EACH * len(numbers)


def test_threads_write_at_once(store: Store) -> None:
    with ThreadPoolExecutor(3) as pool:
        numbers = list(pool.map(lambda writer: write(store, writer), range(3)))
    judge(store, numbers)


def test_processes_write_at_once(store: Store, path: Path) -> None:
    judge(store, in_processes(path))


def test_processes_make_a_store_at_once(path: Path) -> None:
    numbers = in_processes(path)
    opened = Store(path)
    judge(opened, numbers)
    opened.close()
