"""Checkpoints whose states executors write into an object store: which files count, and which are deleted.

The port of data is a folder here. `Cluster` writes there as the tasks of a query do through RegionFiles.java, whose
tests are in java/test. tests/cluster/test_object_live.py runs all of it with Spark.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from falkirk.errors import StoreError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live.written_checkpoints import WrittenCheckpoints
from falkirk.theory.ids import BatchId, LogId
from tests.support import wait_until
from tests.unit.live.machines import Machine
from tests.unit.live.test_checkpoint_files import write_batch

STATE = "state/0/{}/{}_{}{}.changelog"


class Cluster(Machine):
    """The driver's machine of a cluster, with its executors."""

    def __init__(self, place: Path, store: Store, name: str) -> None:
        super().__init__(place, store, name)
        self.may_delete = False  # machines of a test are owners at the same time, and may not sweep what others begin
        self.files = WrittenCheckpoints(
            "r", self.spark, self.data, store, LogId("pages"), may_delete=lambda: self.may_delete
        )

    @property
    def incarnation(self) -> Path:
        """The folder of the present incarnation."""
        return Path(str(self.data)) / self.files.location.split("/")[-2]

    def begin(self, batch: int = -1) -> str | None:
        """Start from a checkpoint."""
        wrong = self.files.restore(BatchId(batch))
        for folder in ("commits", "offsets"):
            (self.spark / folder).mkdir(parents=True, exist_ok=True)
        (self.spark / "metadata").write_text('{"id":"q"}')
        return wrong

    def commit(self, batch: int, *, saved: bool = True) -> None:
        """Commit a batch as Spark does: first the states, then the log."""
        for partition in (0, 1):
            (self.spark / f"state/0/{partition}").mkdir(parents=True, exist_ok=True)
        write_batch(self.spark, batch)
        for file in sorted((self.spark / "state").rglob("*.changelog")):
            target = self.incarnation / "live" / file.relative_to(self.spark)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        if saved:
            self.save(batch)

    def delete(self, version: int) -> None:
        """Delete the files of a version as Spark does."""
        for name in names(version):
            (self.incarnation / "gone" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.incarnation / "gone" / name).touch()

    def base(self) -> dict[str, list[object]]:
        """Return the files of former incarnations that tasks read."""
        found: dict[str, list[object]] = json.loads((self.incarnation / "base.json").read_text())
        return found


def names(*versions: int) -> set[str]:
    """Return the state files of versions."""
    return {STATE.format(p, v, letter, v - 1) for v in versions for p, letter in ((0, "a"), (1, "b"))}


@pytest.fixture
def cluster(tmp_path: Path, store: Store) -> Callable[[str], Cluster]:
    """Return a function that makes a cluster with a driver's machine of a name."""
    return lambda name: Cluster(tmp_path, store, name)


def objects(cluster: Cluster) -> set[str]:
    """Return the names of all state files in the object store."""
    return {f"state/{name.partition('/live/state/')[2]}" for name in cluster.data.listed() if "/live/state/" in name}


def marks(cluster: Cluster, incarnation: Path) -> set[str]:
    """Return the names of the files that an incarnation has marked as deleted."""
    own = f"{incarnation.name}/gone/"
    return {name.removeprefix(own) for name in cluster.data.listed() if name.startswith(own)}


def test_another_cluster_reads_the_recorded_states_where_they_are(cluster: Callable[[str], Cluster]) -> None:
    first = cluster("first")
    first.begin()
    for batch in range(3):
        first.commit(batch)
    first.commit(3, saved=False)
    second = cluster("second")
    assert second.files.numbers() == (0, 1, 2)
    assert second.begin(2) is None
    assert set(second.base()) == names(1, 2, 3), "the states of the commit without a record do not count"
    assert {where for where, _ in second.base().values()} == {f"{first.incarnation.name}/live"}
    assert not list(second.spark.rglob("*.changelog"))
    second.commit(3)
    third = cluster("third")
    assert third.begin(3) is None
    assert set(third.base()) == names(1, 2, 3, 4)
    mine = f"{second.incarnation.name}/live"
    assert {path for path, (where, _) in third.base().items() if where == mine} == names(4)


def test_a_former_owner_that_resumes_changes_no_file_of_the_present_one(cluster: Callable[[str], Cluster]) -> None:
    """Its executors write a state of the same version, and delete all files that they know."""
    first, second, third = (cluster(name) for name in ("first", "second", "third"))
    first.begin()
    first.commit(0)
    assert second.begin(0) is None
    first.commit(1, saved=False)
    first.delete(1)
    (first.incarnation / "live" / STATE.format(0, 2, "late", "")).write_text("late")
    second.commit(1)
    assert third.begin(1) is None
    assert {path: where for path, (where, _) in third.base().items()} == {
        **dict.fromkeys(names(1), f"{first.incarnation.name}/live"),
        **dict.fromkeys(names(2), f"{second.incarnation.name}/live"),
    }


def test_a_commit_counts_once_all_its_states_are_listed(
    cluster: Callable[[str], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may lag. Without the file, no start could load the checkpoint."""
    first, real, late = cluster("first"), LocalData.sizes, STATE.format(1, 2, "b", 1)
    first.begin()
    first.commit(0)
    lags = [True]

    def sizes(data: LocalData) -> dict[str, int]:
        return {name: size for name, size in real(data).items() if not (lags[0] and name == late)}

    monkeypatch.setattr(LocalData, "sizes", sizes)
    first.commit(1, saved=False)
    tries = first.files._tries
    wait_until(lambda: first.files.save(BatchId(1)) == 0 and first.files._tries > tries + 1, 20, "two tries")
    assert first.files.numbers() == (0,)
    lags[0] = False
    first.save(1)
    second = cluster("second")
    assert second.begin(1) is None
    assert set(second.base()) == names(1, 2)


def test_a_file_that_spark_deletes_stays_until_no_checkpoint_has_it(cluster: Callable[[str], Cluster]) -> None:
    first = cluster("first")
    first.begin()
    for batch in range(3):
        first.commit(batch)
    first.delete(1)
    first.commit(3)
    assert objects(first) == names(1, 2, 3, 4)
    first.files.keep_only([BatchId(3)])
    first.commit(4)  # after a record, marks without a recorded object are deleted
    wait_until(lambda: objects(first) == names(2, 3, 4, 5), 20, lambda: f"the deletion: {objects(first)}")
    wait_until(lambda: not marks(first, first.incarnation), 20, "the deletion of the marks")
    second = cluster("second")
    assert second.begin(4) is None
    assert set(second.base()) == names(2, 3, 4, 5)


def test_a_file_that_spark_deletes_stays_hidden_while_its_object_can_not_be_deleted(
    cluster: Callable[[str], Cluster], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object store refuses to delete the files, and then deletes their marks."""
    first, delete, refuses, refused = cluster("first"), LocalData.delete, [True], list[str]()

    def flaky(data: LocalData) -> None:
        if "/live/" in str(data) and refuses[0]:
            refused.append(str(data))
            raise StoreError("DATA_AWAY", "it does not answer")
        delete(data)

    monkeypatch.setattr(LocalData, "delete", flaky)
    first.begin()
    for batch in range(3):
        first.commit(batch)
    first.delete(1)
    first.commit(3)
    first.files.keep_only([BatchId(3)])
    wait_until(lambda: refused, 20, "a refusal")

    def count_again() -> bool:
        return not names(1).isdisjoint(file.path for file in store.state_files("r"))

    for batch in range(4, 7):
        left = len(refused)
        first.commit(batch)
        wait_until(lambda left=left: len(refused) > left or count_again(), 20, "another one")  # type: ignore[misc]
    assert not count_again(), "they are files of no checkpoint"
    refuses[0] = False
    first.commit(7)
    wait_until(lambda: names(1).isdisjoint(objects(first)), 20, "the deletion")


def test_a_deletion_of_a_former_incarnations_file_is_hidden_for_as_long_as_this_one_runs(
    cluster: Callable[[str], Cluster],
) -> None:
    """Executors know the files of former incarnations from a list. Without the mark they would see it again."""
    first, second = cluster("first"), cluster("second")
    first.begin()
    first.commit(0)
    first.commit(1)
    assert second.begin(1) is None
    second.delete(1)
    second.commit(2)
    second.files.keep_only([BatchId(2)])
    second.commit(3)
    wait_until(lambda: objects(second) == names(2, 3, 4), 20, lambda: f"the deletion: {objects(second)}")
    assert marks(second, second.incarnation) == names(1)


def test_what_former_incarnations_left_is_deleted_after_a_checkpoint(cluster: Callable[[str], Cluster]) -> None:
    first, second = cluster("first"), cluster("second")
    first.begin()
    first.commit(0)
    first.commit(1, saved=False)
    first.delete(1)
    assert second.begin(0) is None
    assert objects(second) == names(1, 2)
    left, second.may_delete = first.incarnation, True
    second.commit(1)
    wait_until(lambda: not (left / "base.json").exists(), 20, "the deletion")
    wait_until(lambda: not marks(second, left), 20, "the deletion of the marks")
    wait_until(lambda: len([n for n in second.data.listed() if n.startswith(left.name)]) == 2, 20, "the rest")
    assert objects(second) == names(1, 2)
    assert cluster("third").begin(1) is None


@pytest.mark.parametrize(
    ("harm", "wrong"),
    [
        (Path.unlink, "state/0/1/1_b0.changelog is missing"),
        (lambda file: file.write_text("s"), "state/0/1/1_b0.changelog has 1 bytes and was written with 5"),
    ],
    ids=["missing", "torn"],
)
def test_a_lost_object_is_found_before_spark_runs(
    cluster: Callable[[str], Cluster], harm: Callable[[Path], object], wrong: str
) -> None:
    first = cluster("first")
    first.begin()
    first.commit(0)
    harm(first.incarnation / "live" / STATE.format(1, 1, "b", 0))
    assert cluster("second").begin(0) == wrong


def test_one_machine_resumes_where_a_cluster_ended_and_the_other_way_round(
    cluster: Callable[[str], Cluster], machine: Callable[[str], Machine]
) -> None:
    first, alone, last = cluster("first"), machine("alone"), cluster("last")
    alone.may_delete = False  # as above: it would sweep what the last one begins
    first.begin()
    first.commit(0)
    assert alone.begin(0) is None
    assert names(1) < set(alone.content())
    alone.commit(1)
    assert last.begin(1) is None
    assert set(last.base()) == names(1, 2)
    last.commit(2)
    assert last.files.numbers() == (0, 1, 2)
