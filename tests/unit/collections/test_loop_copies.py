"""The files of an iteration on a cluster: each executor keeps copies, and only reported files count."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow.fs import FileType

from falkirk.errors import FalkirkError, HomeError, StoreError
from falkirk.platform.data import DataPath, Manifest
from falkirk.platform.durable import damaged
from falkirk.platform.local_data import LocalData
from falkirk.platform.object_data import ObjectData
from falkirk.steps.batch.loop_files import LoopFiles, LoopFolders
from falkirk.steps.differential import copies
from falkirk.steps.differential import task as task_module
from falkirk.steps.differential.copies import LOCAL_FOLDERS, CopiedFiles
from falkirk.steps.differential.files import Measured
from falkirk.steps.differential.reports import JobReports, Reporter, TaskId, _Received, _Reports
from falkirk.steps.differential.rows import DIFFERENCE
from falkirk.steps.differential.runs import UNREADABLE_STATE
from falkirk.steps.differential.task import NUMBER, LaterReader, Task, Worker
from tests.support import outcome

ROWS = pa.table({"n": [1, 2, 3]})


class Cluster:
    """A place of data, executors, and one driver after another. Attributes: owner: of the home."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path, self._patch, self.owner = path, patch, ""
        self.data: DataPath = LocalData(path / "data" / "iterate-1")
        self.on("one")

    def on(self, executor: str) -> None:
        """Be this executor from now on."""
        (self.path / executor).mkdir(exist_ok=True)
        self._patch.setenv(LOCAL_FOLDERS, f"{self.path / executor},/elsewhere")

    def driver(self, name: str) -> LoopFiles:
        """Return the files for a driver, which owns the home from now on."""

        def confirm() -> None:
            if self.owner != name:
                raise StoreError("HOME_TAKEN_OVER", "another process owns it", hint="end")

        self.owner = name
        files = LoopFolders(LocalData(self.path / "data"), self.path / name, confirm, on_cluster=True).of("iterate-1")
        files.require({}, contents=True)
        return files

    def there(self) -> set[str]:
        return set(self.data.listed())


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def written(files: LoopFiles, *names: str) -> dict[str, Measured]:
    """Return the report of a task that has written these files."""
    return {name: files.of_task(()).store(name, ROWS) for name in names}


def test_another_executor_fetches_a_file_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, fetched = cluster.driver("a"), list[str]()
    driver.add(written(driver, "0-aa/x.arrow"))
    real = LocalData.copy_to
    monkeypatch.setattr(LocalData, "copy_to", lambda self, *a: (fetched.append(self.name), real(self, *a)))
    task = driver.of_task(["0-aa/x.arrow"])
    assert task.load("0-aa/x.arrow").equals(ROWS)
    assert not fetched, "who has written it has a copy"
    cluster.on("two")
    for _ in range(2):
        assert task.load("0-aa/x.arrow").equals(ROWS)
    assert fetched == ["x.arrow"]


def test_a_damaged_or_deleted_copy_is_fetched_again(cluster: Cluster) -> None:
    driver = cluster.driver("a")
    driver.add(written(driver, "0-aa/x.arrow"))
    (copy,) = (cluster.path / "one").rglob("x.arrow")
    for spoil in (copy.unlink, lambda: copy.write_bytes(b"torn")):
        spoil()
        assert driver.of_task(["0-aa/x.arrow"]).load("0-aa/x.arrow").equals(ROWS)


@pytest.mark.parametrize("content", [None, b"torn", b"as long"])
def test_a_damaged_object_is_told_as_a_damaged_state(cluster: Cluster, content: bytes | None) -> None:
    driver = cluster.driver("a")
    driver.add(written(driver, "0-aa/x.arrow"))
    kept, place = driver.save(["0-aa/x.arrow"]), cluster.path / "data/iterate-1/0-aa/x.arrow"
    whole = place.read_bytes()
    changed = bytes(reversed(whole)) if content == b"as long" else content
    place.unlink() if changed is None else place.write_bytes(changed)
    cluster.on("two")
    with pytest.raises(HomeError, match=UNREADABLE_STATE) as told:
        driver.of_task(kept).load("0-aa/x.arrow")
    assert told.value.condition == "STATE_DAMAGED"
    found = outcome(lambda: cluster.driver("b").require(kept, contents=True))
    assert found == (None if content == b"as long" else "STATE_DAMAGED"), "a start compares sizes"


def test_copies_that_nobody_uses_are_deleted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = cluster.driver("a")
    names = ["0-aa/old.arrow", "0-aa/new.arrow"]
    driver.add(written(driver, *names))
    there = {path.name: path for path in (cluster.path / "one").rglob("*.arrow")}
    long_ago_s = time.time() - copies._UNUSED_S - 9
    for path in there.values():
        os.utime(path, (long_ago_s, long_ago_s))
    driver.of_task(names).load("0-aa/new.arrow")
    driver.add(written(driver, "1-aa/next.arrow"))
    assert {path.name for path in (cluster.path / "one").rglob("*.arrow")} == {"new.arrow", "next.arrow"}
    monkeypatch.setattr(copies, "_MOST_PART", 0.0)
    written(driver, "2-aa/last.arrow")
    assert {path.name for path in (cluster.path / "one").rglob("*.arrow")} == {"last.arrow"}, "the disk is small"
    assert driver.of_task(names).load("0-aa/old.arrow").equals(ROWS)


def test_folders_that_were_empty_for_long_are_deleted(cluster: Cluster) -> None:
    """Each job of each epoch has one. An executor runs for weeks, and each look walks through all of them."""
    driver, long_ago_s = cluster.driver("a"), time.time() - copies._UNUSED_S - 9
    driver.add(written(driver, "0-aa/0-bb/old.arrow", "0-aa/1-bb/used.arrow"))
    there = {path.name: path for path in (cluster.path / "one").rglob("*")}
    for path in (there["old.arrow"], there["0-bb"], there["1-bb"]):
        os.utime(path, (long_ago_s, long_ago_s))
    written(driver, "1-aa/0-cc/new.arrow")
    assert not there["old.arrow"].exists()
    assert there["0-bb"].is_dir(), "it was not empty for long"
    os.utime(there["0-bb"], (long_ago_s, long_ago_s))
    written(driver, "2-aa/0-dd/newer.arrow")
    assert not there["0-bb"].exists()
    assert there["used.arrow"].exists()
    assert driver.of_task(["0-aa/0-bb/old.arrow"]).load("0-aa/0-bb/old.arrow").equals(ROWS)


def test_a_long_epoch_makes_room_for_its_own_files(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = cluster.driver("a")
    monkeypatch.setattr(copies, "_MOST_PART", 0.0)
    written(driver, "0-aa/first.arrow", "0-aa/second.arrow")
    assert {path.name for path in (cluster.path / "one").rglob("*.arrow")} == {"first.arrow", "second.arrow"}
    monkeypatch.setattr(copies, "_LOOK_S", 0.0)
    written(driver, "0-aa/third.arrow")
    assert {path.name for path in (cluster.path / "one").rglob("*.arrow")} == {"third.arrow"}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_copy_that_others_delete_meanwhile_is_no_damage(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """Another worker makes room, or the executor ends. The error would end the batch, and ask for a rollback."""
    driver, real, fetched = cluster.driver("a"), LocalData.copy_to, list[bool]()
    driver.add(written(driver, "0-aa/x.arrow"))
    cluster.on("two")

    def copy_to(self: LocalData, file: Path, size: int, checksum: int | None) -> None:
        fetched.append(is_whole)
        if len(fetched) > 1 or is_whole:
            real(self, file, size, checksum)
        if len(fetched) == 1:
            file.unlink(missing_ok=True)
            if not is_whole:  # its temporary file was deleted
                raise damaged("a file is missing.", self)

    monkeypatch.setattr(LocalData, "copy_to", copy_to)
    assert driver.of_task(["0-aa/x.arrow"]).load("0-aa/x.arrow").equals(ROWS)
    assert len(fetched) == 2


def test_a_file_that_another_worker_is_writing_stays(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = cluster.driver("a")
    driver.add(written(driver, "0-aa/x.arrow"))
    (copy,) = (cluster.path / "one").rglob("x.arrow")
    fetching, left = copy.with_name(".y.arrow.7.7"), copy.with_name(".z.arrow.8.8")
    for path in (fetching, left):
        path.write_bytes(b"a part")
    os.utime(fetching, (time.time() - 60, time.time() - 60))  # the next part is slow
    os.utime(left, (time.time() - copies._UNUSED_S - 9,) * 2)
    monkeypatch.setattr(copies, "_MOST_PART", 0.0)
    written(driver, "1-aa/next.arrow")
    assert [path.exists() for path in (copy, fetching, left)] == [False, True, False]


def test_two_attempts_of_a_task_change_no_file_of_each_other(cluster: Cluster) -> None:
    """The first report counts. The epoch's files that nobody has reported are deleted after it."""
    driver = cluster.driver("a")
    driver.begin("0-aa")
    first, second = written(driver, "0-aa/x_1.arrow"), written(driver, "0-aa/x_2.arrow")
    tasks = received([("job", ("op", 0), first), ("job", ("op", 0), second)])
    driver.add(tasks["op", 0])
    kept = driver.save(tasks["op", 0])
    assert cluster.there() == {"0-aa/x_1.arrow", "0-aa/x_2.arrow"}
    assert set(kept) == {"0-aa/x_1.arrow"}
    driver.sweep(driver.candidates(), set(kept))
    assert cluster.there() == set(kept)


def test_a_second_attempt_of_a_task_overwrites_no_object(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the same rows, in another order. A note may have the CRC-32 of the first one's file already."""
    schema = pa.schema([("n", pa.int64()), (DIFFERENCE, pa.int64())])
    driver, tasks = cluster.driver("a"), dict[TaskId, dict[str, Measured]]()
    reporter: Any = tasks.__setitem__
    task = Task(
        holder="store-0", operator=None, now=(), inputs=(schema,), output=schema, arrives=True, files={},
        place=driver.of_task(()), folder="0-aa/0-bb", partitions=1,
        readers=(LaterReader(holder="r", port=0, names=("n",)),), emits=False, report=reporter,
    )  # fmt: skip

    def attempt(*numbers: int) -> dict[str, Measured]:
        """Run the task; return what it has reported."""
        batch = pa.RecordBatch.from_pydict({"n": numbers, DIFFERENCE: [1] * len(numbers)}, schema=schema)
        (told,) = Worker(task, 0).work(iter([batch]))
        assert told.to_pydict() == {NUMBER: [0]}
        return tasks.pop(("store-0", 0))

    first = attempt(1, 2)
    driver.add(first)
    second = attempt(2, 1)
    assert not first.keys() & second.keys()
    cluster.on("two")
    for name in first:
        assert driver.of_task(first).load(name).num_rows == 2
    monkeypatch.setattr(task_module, "new_attempt", lambda: "0")
    assert attempt(1, 2).keys() == attempt(2, 1).keys(), "the mechanism is off"


def test_rows_that_a_task_stores_twice_for_one_time_are_in_two_files(cluster: Cluster) -> None:
    """Rows that arrive for a later round, and an operator's own results for it: they may be equally many."""
    schema = pa.schema([("n", pa.int64()), (DIFFERENCE, pa.int64())])
    driver, told = cluster.driver("a"), dict[TaskId, dict[str, Measured]]()
    reporter: Any = told.__setitem__
    task = Task(
        holder="r", operator=None, now=(), inputs=(schema,), output=schema, arrives=True, files={},
        place=driver.of_task(()), folder="0-aa/0-bb", partitions=1,
        readers=(LaterReader(holder="r", port=0, names=("n",)),), emits=False, report=reporter,
    )  # fmt: skip
    worker = Worker(task, 0)
    worker.defer("deferred0", (), pa.table({"n": [5, 6]}))
    batch = pa.RecordBatch.from_pydict({"n": [1, 2], DIFFERENCE: [1, 1]}, schema=schema)
    assert len(list(worker.work(iter([batch])))) == 1
    report = told["r", 0]
    driver.add(report)
    found = [n for name in report for n in driver.of_task(report).load(name).column("n").to_pylist()]
    assert sorted(found) == [1, 2, 5, 6]


def test_a_start_deletes_what_a_former_owner_writes_late(cluster: Cluster) -> None:
    former = cluster.driver("a")
    former.begin("0-aa")
    former.add(written(former, "0-aa/x.arrow"))
    kept = former.save(["0-aa/x.arrow"])
    former.begin("1-aa")
    former.add(written(former, "1-aa/y.arrow"))  # it is suspended in a round, and its executors as well
    present = cluster.driver("b")
    present.require(kept, contents=True)
    present.begin("1-bb")
    present.add(written(present, "1-bb/z.arrow"))
    newer = {**kept, **present.save(["1-bb/z.arrow"])}
    written(former, "1-aa/late.arrow")
    assert outcome(lambda: former.sweep(former.candidates(), {"1-aa/y.arrow"})) == "HOME_TAKEN_OVER"
    present.sweep(present.candidates(), set(newer))
    assert cluster.there() == set(newer)


def received(reports: list[tuple[str, TaskId, dict[str, Measured]]]) -> dict[TaskId, dict[str, Measured]]:
    """Return what the driver of the job "job" has received."""
    driver, job = _Received(), JobReports.__new__(JobReports)
    job.tasks, driver.jobs["job"] = {}, job
    sent = _Reports().zero(driver)
    for each in reports:
        sent = _Reports().addInPlace(sent, [each])
    assert _Reports().addInPlace(driver, sent) is driver
    return job.tasks


def test_a_folder_that_the_next_run_has_begun_is_listed_again(cluster: Cluster) -> None:
    """A run that is over may still look for candidates. Then it deletes nothing, and the folder is not complete yet."""
    driver = cluster.driver("a")
    driver.sweep(driver.candidates(), set())
    driver.begin("1-bb")
    first = written(driver, "1-bb/x_1.arrow")
    driver.candidates()  # of the former run, which finds that it is over
    driver.add(first)
    written(driver, "1-bb/x_2.arrow")  # by an attempt that then fails
    driver.sweep(driver.candidates(), set(first))
    assert cluster.there() == set(first)


class Unsteady:
    """A client of an object store, which refuses the first request for each object."""

    def __init__(self) -> None:
        self._asked, self._lock = set[str](), threading.Lock()

    def get_file_info(self, keys: list[str]) -> list[Any]:
        with self._lock:
            for key in keys:
                if key not in self._asked:
                    self._asked.add(key)
                    raise OSError("AWS Error SLOW_DOWN: reduce your request rate")
        return [SimpleNamespace(type=FileType.File, size=9) for _ in keys]


def test_a_start_finds_many_files_though_single_requests_fail(tmp_path: Path) -> None:
    """All sizes were one request, which began anew if it failed: the greater the state, the less a start succeeded."""
    data = ObjectData(cast(Any, Unsteady()), "s3a", "shop/home")
    files = LoopFolders(data, tmp_path, on_cluster=True).of("iterate-1")
    kept: Manifest = {f"0-aa/{number}.arrow": [9, 1] for number in range(8)}
    assert outcome(lambda: files.require(kept, contents=True)) is None
    assert outcome(lambda: files.require({**kept, "0-aa/x.arrow": [8, 1]}, contents=True)) == "STATE_DAMAGED"


def test_reports_of_other_jobs_are_dropped() -> None:
    assert received([("job", ("op", 1), {"x": []}), ("gone", ("op", 2), {"y": []})]) == {("op", 1): {"x": []}}


def test_a_report_that_did_not_arrive_fails_the_job() -> None:
    """Spark only logs that it could not deliver one. The file of that task would be missing in the state."""
    job = JobReports.__new__(JobReports)
    job.tasks, job.reporter = {("op", 0): {"x": []}}, Reporter(None, "job")
    assert job.of([("op", 0)]) == [{"x": []}]
    with pytest.raises(FalkirkError) as told:
        job.of([("op", 0), ("op", 1)])
    assert told.value.condition == "REPORT_LOST"
    assert "partition 1" in told.value.message


def test_a_task_has_only_the_files_that_it_may_read(cluster: Cluster) -> None:
    driver = cluster.driver("a")
    driver.add(written(driver, "0-aa/x.arrow", "0-aa/y.arrow"))
    task = driver.of_task(["0-aa/x.arrow"])
    assert isinstance(task, CopiedFiles)
    assert set(task.known) == {"0-aa/x.arrow"}
