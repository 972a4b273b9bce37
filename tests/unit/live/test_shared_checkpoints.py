"""Checkpoints in an object store: one counts once it is recorded, and a start makes Spark's folder equal to it.

The port of data is a second folder here; tests/contract/test_data_port.py compares it with a real S3 server.
"""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from falkirk.errors import StoreError
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live import shared_checkpoints
from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from falkirk.theory.ids import BatchId, LogId
from tests.support import outcome, wait_until
from tests.unit.live.machines import Machine
from tests.unit.live.test_checkpoint_files import write_batch

NOTHING = BatchId(-1)


def test_another_machine_has_the_recorded_checkpoint_and_nothing_else(machine: Callable[[str], Machine]) -> None:
    first = machine("first")
    first.begin()
    for batch in range(3):
        first.commit(batch)
    before = first.content()
    first.commit(3, saved=False)
    second = machine("second")
    assert second.files.numbers() == (0, 1, 2)
    assert second.files.end_offsets(BatchId(2), LogId("pages")) == {0: 20, 1: 2}
    assert second.files.made_at_s(BatchId(2)) == first.files.made_at_s(BatchId(2))
    assert second.begin(2) is None
    wanted = {n: t for n, t in before.items() if n not in ("commits/0", "commits/1", "offsets/0")}
    assert second.content() == wanted
    second.commit(3)
    assert machine("third").files.numbers() == (0, 1, 2, 3)


def test_a_commit_that_was_not_recorded_has_not_happened(machine: Callable[[str], Machine]) -> None:
    """Its folder has the commit. Its results may be published, and the barrier drops their duplicates."""
    first = machine("first")
    first.begin()
    first.commit(0)
    before = first.content()
    first.commit(1, saved=False)
    again = machine("first")
    again.files.rewind(BatchId(0))
    assert again.begin(0) is None
    assert (again.content(), last_committed_batch(again.spark)) == (before, 0)


def test_a_torn_file_of_the_working_copy_is_fetched_again(machine: Callable[[str], Machine]) -> None:
    """A power loss may leave it with its size and other content. Spark would call the checkpoint damaged."""
    first = machine("first")
    first.begin()
    first.commit(0)
    before = first.content()
    (first.spark / "state/0/0/1_a0.changelog").write_text("\0" * len("state"))
    (first.spark / "state/0/1/1_b0.changelog").unlink()
    again = machine("first")
    assert again.begin(0) is None
    assert again.content() == before


@pytest.mark.parametrize("change", [lambda p: p.unlink(), lambda p: p.write_text("stale"), lambda p: p.write_text("")])
def test_a_damaged_object_is_found_before_spark_runs(
    machine: Callable[[str], Machine], change: Callable[[Path], None]
) -> None:
    first = machine("first")
    first.begin()
    first.commit(0)
    first.commit(1)
    (damaged,) = (first.spark.parent / "objects").rglob("2_b1.changelog")
    change(damaged)
    second = machine("second")
    assert second.begin(1) is not None
    assert last_committed_batch(second.spark) == NOTHING, "Spark can't resume from it"
    second.files.rewind(BatchId(0))
    assert second.begin(0) is None


def test_what_spark_deletes_stays_while_a_kept_checkpoint_has_it(
    machine: Callable[[str], Machine], store: Store
) -> None:
    """A rollback finds it, and then it is one of the present files again."""
    first = machine("first")
    first.begin()
    for batch in range(4):
        if batch == 3:
            (first.spark / "state/0/0/1_a0.changelog").unlink()  # by Spark's maintenance
        first.commit(batch)
    first.files.keep_only([BatchId(1), BatchId(3)])
    assert first.files.numbers() == (1, 3)
    assert len(list((first.spark.parent / "objects").rglob("1_a0.changelog"))) == 1
    second = machine("second")
    second.files.rewind(BatchId(1))
    assert second.begin(1) is None
    assert "state/0/0/1_a0.changelog" in second.content()
    assert "state/0/0/3_a2.changelog" not in second.content()
    for batch in (2, 3):
        second.commit(batch)
    (second.spark / "state/0/0/1_a0.changelog").unlink()
    second.commit(4)
    second.files.keep_only([BatchId(4)])
    wait_until(lambda: not any("1_a0." in name for name in second.data.listed()), 20, "its deletion")
    assert machine("third").begin(4) is None


def test_old_files_that_could_not_be_deleted_are_deleted_with_the_next_ones(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that can never be deleted keeps none of the others."""
    first, refused, is_away = machine("first"), set[str](), threading.Event()
    first.begin()
    for name in ("delete", "remove"):
        real = getattr(LocalData, name)

        def ask(data: LocalData, real: Callable[[LocalData], None] = real) -> None:
            if is_away.is_set() or "2_a1" in str(data):
                refused.add(str(data))
                raise DATA_AWAY.error(where=data, reason="a test")
            real(data)

        monkeypatch.setattr(LocalData, name, ask)
    is_away.set()
    for batch in range(5):
        first.commit(batch)
    for version in (1, 2, 3):
        (first.spark / f"state/0/0/{version}_a{version - 1}.changelog").unlink()  # by Spark's maintenance
    first.commit(5)
    first.files.keep_only([BatchId(5)])
    wait_until(lambda: refused, 20, "a deletion that fails")
    is_away.clear()

    def is_deleted() -> bool:
        first.files.keep_only([BatchId(5)])
        return not any("1_a0." in name or "3_a2." in name for name in first.data.listed())

    wait_until(is_deleted, 20, "the deletion of all others")
    assert machine("second").begin(5) is None


def test_a_rollback_to_the_beginning_leaves_nothing(machine: Callable[[str], Machine]) -> None:
    first = machine("first")
    first.begin()
    first.commit(0)
    first.files.rewind(NOTHING)
    before = set(first.data.listed())
    first.begin()
    assert first.files.numbers() == ()
    first.commit(0)
    wait_until(lambda: not before & set(first.data.listed()), 20, "the deletion of what no record names")
    assert machine("second").begin(0) is None


def test_a_store_that_is_away_delays_checkpoints_and_one_that_refuses_ends_the_region(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, real = machine("first"), LocalData.copy_from
    first.begin()
    first.commit(0)
    reason = [DATA_AWAY]

    def fail(data: LocalData, file: Path) -> tuple[int, int]:
        raise reason[0].error(where=data, reason="a test")

    monkeypatch.setattr(LocalData, "copy_from", fail)
    first.commit(1, saved=False)

    def waits() -> bool:
        assert first.files.save(BatchId(1)) == 0
        return first.files.waits_for != ""

    wait_until(waits, 20, "the object store to be missed")
    reason[0] = DATA_UNUSABLE

    def refused() -> bool:
        try:
            first.files.save(BatchId(1))
        except StoreError as error:
            return error.condition == "DATA_UNUSABLE"
        return False

    wait_until(refused, 20, "the refusal")
    monkeypatch.setattr(LocalData, "copy_from", real)
    first.save(1)
    assert (first.files.numbers(), first.files.waits_for) == ((0, 1), "")


def test_a_former_owner_changes_nothing(machine: Callable[[str], Machine], tmp_path: Path) -> None:
    """It was suspended, resumes, uploads what it has, and can't record or delete anything."""
    former = Store(tmp_path / "decisions.db")
    former.take_charge("the former owner")
    old = Machine(tmp_path, former, "old")
    old.begin()
    old.commit(0)
    present = Store(tmp_path / "decisions.db")
    present.take_charge("the present owner")
    new = Machine(tmp_path, present, "new")
    assert new.begin(0) is None
    new.commit(1)
    write_batch(old.spark, 1)

    def is_refused() -> bool:
        return outcome(lambda: old.files.save(BatchId(1))) == "HOME_TAKEN_OVER"

    wait_until(is_refused, 20, "the refusal of its record")
    assert outcome(lambda: old.files.keep_only([BatchId(0)])) == "HOME_TAKEN_OVER"
    assert outcome(lambda: old.files.restore(BatchId(0))) == "HOME_TAKEN_OVER"
    shutil.rmtree(new.spark)
    assert Machine(tmp_path, present, "new").begin(1) is None


def test_an_incarnation_that_ends_saves_its_last_commit(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one then replays nothing. It does not wait long for an object store that does not answer."""
    first = machine("first")
    first.begin()
    first.commit(0)
    first.commit(1, saved=False)
    assert first.files.save(BatchId(1)) == 0, "an upload is under way"
    first.commit(2, saved=False)
    first.files.finish(BatchId(2))
    assert first.files.numbers()[-1] == 2
    first.files.finish(BatchId(2))
    ends, began = threading.Event(), threading.Event()

    def hang(data: LocalData, file: Path) -> tuple[int, int]:
        began.set()
        ends.wait(60)
        return 0, 0

    monkeypatch.setattr(LocalData, "copy_from", hang)
    monkeypatch.setattr(shared_checkpoints, "_FINISH_S", 0.1)
    first.commit(3, saved=False)
    first.files.finish(BatchId(3))
    assert began.wait(20)
    assert first.files.numbers()[-1] == 2
    ends.set()
