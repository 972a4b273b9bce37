"""The record of checkpoints whose files are in an object store, on both databases."""

from falkirk.recovery.decision_store import CheckpointCopy, StateFile, Store
from falkirk.theory.ids import BatchId
from tests.stores import Place


def copy(number: int) -> CheckpointCopy:
    return CheckpointCopy(batch=BatchId(number), texts={f"commits/{number}": "v1\n{}"}, made_at_s=float(number))


def file(path: str, first: int, gone: int | None = None) -> StateFile:
    gone_at = None if gone is None else BatchId(gone)
    return StateFile(path=path, folder="aa", size=3, checksum=7, first=BatchId(first), gone=gone_at)


def test_a_checkpoint_is_recorded_with_its_files_and_found_by_another_process(store: Store, place: Place) -> None:
    store.record_copy("r", copy(0), [file("a", 0), file("b", 0)], [])
    store.record_copy("r", copy(2), [file("c", 2)], [file("a", 0)])
    store.record_copy("r", copy(2), [file("c", 2)], [file("a", 0)])  # the answer to the first try was lost
    store.record_copy("other", copy(9), [file("a", 9)], [])
    again = place.open(must_exist=True)
    assert again.checkpoint_copies("r") == {0: copy(0), 2: copy(2)}
    files = again.state_files("r")
    assert files == (file("a", 0, gone=2), file("b", 0), file("c", 2))
    assert [[f.path for f in files if f.is_of(BatchId(n))] for n in (0, 1, 2)] == [["a", "b"], ["a", "b"], ["b", "c"]]
    again.close()


def test_a_rewound_region_has_the_files_of_that_checkpoint(store: Store) -> None:
    """A file that was deleted after it is one of its files again."""
    store.record_copy("r", copy(0), [file("a", 0)], [])
    store.record_copy("r", copy(1), [file("b", 1)], [])
    store.record_copy("r", copy(2), [file("c", 2)], [file("a", 0)])
    for _ in range(2):
        store.rewind_copies("r", BatchId(1))
        assert list(store.checkpoint_copies("r")) == [0, 1]
        assert store.state_files("r") == (file("a", 0), file("b", 1))
    store.rewind_copies("r", BatchId(-1))
    assert (store.checkpoint_copies("r"), store.state_files("r")) == ({}, ())


def test_only_the_checkpoints_that_are_kept_stay(store: Store) -> None:
    for number in range(5):
        store.record_copy("r", copy(number), [file(f"f{number}", number)], [file("f0", 0)] if number == 3 else [])
    for _ in range(2):
        store.keep_copies("r", [BatchId(1), BatchId(3)], [file("f0", 0, gone=3)])
        assert list(store.checkpoint_copies("r")) == [1, 3, 4]
        assert [f.path for f in store.state_files("r")] == ["f1", "f2", "f3", "f4"]
