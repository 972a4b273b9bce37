"""One contract for the port of data, over a local disk and a real S3 server; and the server's faults."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from falkirk.errors import HomeError, InternalError, StoreError
from falkirk.platform import object_data
from falkirk.platform.copies import has_content
from falkirk.platform.data import DataPath, local_path
from falkirk.platform.local_data import LocalData
from falkirk.platform.object_data import COMPLETE_FILE, WRITTEN, ObjectData, data_at
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.theory.ids import LogId, Offset
from tests.hdfs_server import is_chosen
from tests.objects import ObjectStore
from tests.support import outcome

#: The random part of the name of a file that is being written, which each try has anew.
UNFINISHED = re.compile(r"\.[0-9a-f]{16}\b")
#: Requests that only S3 has.
of_s3 = pytest.mark.skipif(is_chosen(), reason="an HDFS has no such requests")
ROWS = pa.table({"n": [1, 2, 3]})


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_data, "_PAUSES_S", (0.0, 0.0))


@pytest.fixture
def remote(objects: ObjectStore, request: pytest.FixtureRequest) -> ObjectData:
    return objects.data(re.sub(r"\W+", "-", request.node.name))


@pytest.fixture(params=["local", "objects"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> DataPath:
    if request.param == "local":
        return LocalData(tmp_path)
    remote = request.getfixturevalue("remote")
    assert isinstance(remote, ObjectData)
    return remote


def job(folder: DataPath, *names: str) -> None:
    """Write files of rows, as a Spark job does; in an object store with the list of the commit protocol."""
    sizes = {}
    for name in names:
        sink = pa.BufferOutputStream()
        parquet.write_table(ROWS, sink)
        content = bytes(sink.getvalue())
        sizes[name] = len(content)
        if isinstance(folder, ObjectData):
            with folder._system.open_output_stream(f"{folder.key}/{name}") as file:
                file.write(content)
        else:
            path = local_path(folder / name, "a test")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    if isinstance(folder, ObjectData):
        with folder._system.open_output_stream(f"{folder.key}/{WRITTEN}") as file:
            file.write(json.dumps({"files": sizes}).encode())
        folder.saved()


def test_a_folder_is_written_completed_read_and_removed(data: DataPath) -> None:
    epoch = data / "0-aa"
    assert not epoch.exists()
    assert epoch.children() == []
    job(epoch, "part-0.parquet", "part-1.parquet")
    job(epoch / "_dead0", "part-0.parquet")
    manifest = epoch.sync()
    assert {"part-0.parquet", "part-1.parquet", "_dead0/part-0.parquet"} <= set(manifest)
    assert epoch.exists()
    whole = (data / "0-aa").check(manifest)
    assert (whole.count_rows(), (whole / "_dead0").count_rows()) == (6, 3)
    assert "_dead0" in [child.name for child in whole.children()]
    assert all(path.startswith(str(epoch)) for path in whole.rows())
    epoch.remove()
    assert not epoch.exists()
    assert outcome(lambda: epoch.check(manifest)) == "STATE_DAMAGED"
    epoch.remove()  # again, after a crash


def test_a_text_is_replaced_whole(data: DataPath) -> None:
    note = data / "0-state" / "loop.json"
    with pytest.raises(FileNotFoundError):
        note.read_text()
    note.write_text("{}")
    note.write_text('{"é": 1}')
    assert note.read_text() == '{"é": 1}'
    assert note.exists()
    assert (data / "0-state" / "loop.json") == note
    assert set((data / "0-state").sync()) == {"loop.json"}


@pytest.mark.parametrize("content", [None, b"shorter", b"X" * 10])
def test_a_changed_file_is_found(data: DataPath, content: bytes | None) -> None:
    job(data / "0-aa", "part-0.parquet")
    manifest = (data / "0-aa").sync()
    path = data / "0-aa" / "part-0.parquet"
    if content is not None and content.startswith(b"X"):
        content = content[:1] * manifest["part-0.parquet"][0]
    if isinstance(path, ObjectData):
        if content is None:
            path._system.delete_file(path.key)
        else:
            with path._system.open_output_stream(path.key) as file:
                file.write(content)
    else:
        local = local_path(path, "a test")
        local.unlink() if content is None else local.write_bytes(content)
    with pytest.raises(HomeError) as refused:
        (data / "0-aa").check(manifest)
    assert (refused.value.condition, refused.value.parameters["file"]) == ("STATE_DAMAGED", str(path))


def test_a_folder_without_rows_is_complete(data: DataPath) -> None:
    (data / "0-aa").make()
    assert (data / "0-aa").sync() == {}
    assert (data / "0-aa").exists()


def test_only_data_on_a_disk_have_a_local_path(remote: ObjectData) -> None:
    with pytest.raises(InternalError) as refused:
        local_path(remote, "a loop")
    assert refused.value.condition == "DATA_NOT_LOCAL"


def test_another_process_reads_the_results_and_the_state_that_this_one_recorded(data: DataPath, tmp_path: Path) -> None:
    """It has written none of their files, and knows them from the records alone."""
    store = Store(tmp_path / "decisions.db")
    log = EpochLog(LogId("epochs:b"), "b", data / "b", store)
    number = log.decide({LogId("t"): {0: Offset(0)}}, {LogId("t"): {0: Offset(3)}}, {}, 0.0)
    for folder in ("0-aa", "0-state/own"):
        job(log.folder / folder, "part-0.parquet")
    log.record(number, folder="0-aa", rows=3, dead=0, state="0-state", saved=True)
    other = data if not isinstance(data, ObjectData) else ObjectData(data._system, data._scheme, data.key)
    fresh = EpochLog(LogId("epochs:b"), "b", other / "b", store)
    (epoch,) = fresh.epochs()
    assert fresh.results(epoch).count_rows() == (fresh.state(epoch) / "own").count_rows() == 3
    assert fresh.path("0-aa").count_rows() == (fresh.path("0-state") / "own").count_rows() == 3
    assert (fresh.path("0-state") / "own").rows()
    fresh.drop("0-state")
    dropped = outcome(lambda: (fresh.path("0-state") / "own").count_rows())
    assert dropped == ("DATA_UNKNOWN" if isinstance(data, ObjectData) else 0)
    store.close()


# --- faults of an object store


def test_a_listing_shows_what_is_there_and_a_removal_leaves_nothing(remote: ObjectData) -> None:
    """A listing that is always empty would make the tests below pass for nothing."""
    epoch = remote / "0-aa"
    job(epoch, "part-0.parquet")
    assert set(epoch.listed()) == {"part-0.parquet", WRITTEN}
    assert [child.name for child in remote.children()] == ["0-aa"]
    fresh = ObjectData(epoch._system, epoch._scheme, epoch.key)  # another process, which has only the listing
    fresh.remove()
    assert epoch.listed() == []


@of_s3
def test_a_listing_that_lags_hides_no_rows(objects: ObjectStore, remote: ObjectData) -> None:
    """Names come from the job and the manifest. Nothing is left over when the folder is removed."""
    epoch = remote / "0-aa"
    with objects.lagging(lambda key: "0-aa" in key):
        job(epoch, "part-0.parquet", "part-1.parquet")
        manifest = epoch.sync()
        assert epoch.check(manifest).count_rows() == 6
        fresh = objects.data(f"{remote.name}/{epoch.name}")  # another process
        assert fresh.check(manifest).count_rows() == 6
        fresh.remove()
    assert [name for name in epoch.listed() if name != WRITTEN] == []


def test_a_crash_after_each_request_of_a_removal_leaves_all_or_nothing(
    objects: ObjectStore, remote: ObjectData
) -> None:
    """A reader that finds the manifest finds all files."""
    for after in range(6):
        epoch = remote / f"{after}-aa"
        job(epoch, "part-0.parquet", "part-1.parquet")
        manifest, seen = epoch.sync(), [0]
        with objects.failing(_after(after, seen)):
            outcome(epoch.remove)
        fresh = objects.data(f"{remote.name}/{epoch.name}")
        if fresh.exists():
            assert fresh.check(manifest).count_rows() == 6
        fresh.remove()  # as the collection of strays does
        assert not fresh.exists()


def _after(deletes: int, seen: list[int]) -> Callable[[str, str], str]:
    """Refuse everything after so many requests that delete."""

    def fault(method: str, path: str) -> str:
        seen[0] += method == "DELETE" or path.endswith("?delete")
        return "refuse" if seen[0] > deletes else ""

    return fault


@pytest.mark.parametrize("fault", ["refuse", "repeat", "cut", "half", "stall"])
def test_a_request_that_fails_once_is_repeated(
    objects: ObjectStore, remote: ObjectData, fault: str, tmp_path: Path
) -> None:
    failed: set[tuple[str, str]] = set()

    def once(method: str, path: str) -> str:
        request = method, UNFINISHED.sub("", path)
        if request in failed:
            return ""
        failed.add(request)
        return fault

    impatient = objects.data(remote.name, request_timeout=0.5)
    with objects.failing(once):
        (impatient / "note.json").write_text("text")
        assert (impatient / "note.json").read_text() == "text"
        (tmp_path / "a").write_text("content")
        measured = (impatient / "copy").copy_from(tmp_path / "a")
        (impatient / "copy").copy_to(tmp_path / "b", *measured)
        assert (tmp_path / "b").read_text() == "content"
    assert failed


@of_s3
@pytest.mark.parametrize("fault", ["refuse", "repeat", "half"])
def test_an_upload_that_is_cut_off_leaves_nothing(objects: ObjectStore, remote: ObjectData, fault: str) -> None:
    """A large file is uploaded in parts, and exists once the store has all of them."""
    text, note = "x" * 11_000_000, remote / "note.json"
    with objects.failing(lambda method, path: fault if "partNumber=2" in path else ""):
        assert outcome(lambda: note.write_text(text)) == "DATA_AWAY"
        assert not note.exists()
    once = [fault]
    with objects.failing(lambda method, path: once.pop() if once and "uploadId=" in path and method == "POST" else ""):
        note.write_text(text)  # the request that completes the upload fails once
    assert not once
    assert note.read_text() == text


def test_a_store_that_does_not_answer_is_away_and_nothing_counts_as_damaged(
    objects: ObjectStore, remote: ObjectData, tmp_path: Path
) -> None:
    job(remote / "0-aa", "part-0.parquet")
    (tmp_path / "a").write_text("content")
    measured = (remote / "copy").copy_from(tmp_path / "a")
    manifest = (remote / "0-aa").sync()
    with objects.failing(lambda method, path: "refuse"):
        for use in (
            lambda: (remote / "0-aa").check(manifest), (remote / "0-aa").exists, (remote / "0-aa").children,
            lambda: (remote / "note.json").write_text("text"), lambda: (remote / "other").copy_from(tmp_path / "a"),
            lambda: (remote / "copy").copy_to(tmp_path / "b", *measured), (remote / "copy").delete, remote.listed,
        ):  # fmt: skip
            with pytest.raises(StoreError) as away:
                use()
            assert away.value.condition == "DATA_AWAY"
    assert (remote / "0-aa").check(manifest).count_rows() == 3
    assert not (remote / "note.json").exists(), "no refused request has written"


def test_a_refusal_that_no_wait_mends_is_told_at_once(objects: ObjectStore, remote: ObjectData) -> None:
    """It is not repeated, and batches do not wait for it."""
    job(remote / "0-aa", "part-0.parquet")
    manifest = (remote / "0-aa").sync()
    with objects.failing(lambda method, path: "deny"):
        for use in (
            lambda: (remote / "0-aa").check(manifest), (remote / "0-aa").exists, (remote / "note.json").read_text,
            lambda: (remote / "note.json").write_text("text"),
        ):  # fmt: skip
            before = len(objects.requests)
            assert outcome(use) == "DATA_UNUSABLE"
            assert len(objects.requests) - before <= 2
    missing = ObjectData(
        objects.system(), "s3a", "no-such-bucket/other/shop"
    )  # in an HDFS: in a folder of the superuser
    assert outcome(lambda: (missing / "note.json").write_text("text")) == "DATA_UNUSABLE"


def test_nothing_is_asked_below_the_name_of_an_object(objects: ObjectStore, remote: ObjectData) -> None:
    """Regression: servers that keep objects in files answer 500 to that, so the store was away for good."""
    note = remote / "schemas.json"
    note.write_text("{}")
    with objects.failing(lambda method, path: "refuse" if "schemas.json/" in path.replace("%2F", "/") else ""):
        assert note.exists()


@of_s3
def test_a_server_that_knows_no_checksums_is_used(
    objects: ObjectStore, remote: ObjectData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each upload to it was refused with 400, as pyarrow's client adds a CRC-64 by default."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "knows_checksums", False)
    note = data_at(str(remote)) / "note.json"
    note.write_text("text")
    assert note.read_text() == "text"
    assert "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ, "other clients of the process keep theirs"
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    chosen = data_at(str(remote)) / "note.json"
    assert outcome(lambda: chosen.write_text("text")) == "DATA_AWAY", "the user's choice has priority"


def test_a_job_without_a_list_of_its_files_is_refused(remote: ObjectData) -> None:
    """Its rows would be missing without notice."""
    assert outcome((remote / "0-aa").saved) == "STATE_DAMAGED"


def test_rows_of_a_folder_whose_files_are_unknown_are_refused(objects: ObjectStore, remote: ObjectData) -> None:
    """A listing could show some of them, and an empty answer would lose them without notice."""
    epoch = remote / "0-aa"
    job(epoch, "kind=a/part-0.parquet")
    manifest = epoch.sync()
    fresh = objects.data(f"{remote.name}/{epoch.name}")  # another process
    for folder in (fresh, fresh / "kind=a", remote / "1-bb", remote):
        assert outcome(folder.rows) == outcome(folder.arrow) == "DATA_UNKNOWN"
    for folder in (epoch, fresh.check(manifest)):
        assert ((folder / "kind=a").count_rows(), (folder / "kind=b").rows()) == (3, [])
    epoch.remove()
    assert outcome((epoch / "kind=a").rows) == "DATA_UNKNOWN"


def test_a_folder_without_its_manifest_is_not_complete(remote: ObjectData) -> None:
    job(remote / "0-aa", "part-0.parquet")
    assert not (remote / "0-aa").exists()
    (remote / "0-aa").sync()
    assert (remote / "0-aa" / COMPLETE_FILE).exists()
    assert (remote / "0-aa").exists()


@pytest.mark.parametrize("size", [0, 10, (1 << 20) + 3])
def test_a_local_file_is_copied_there_and_back(data: DataPath, tmp_path: Path, size: int) -> None:
    source, target = tmp_path / "57_a.changelog", tmp_path / "again" / "57_a.changelog"
    source.write_bytes(b"x" * size)
    copied = data / "r" / "aa/state/0/57_a.changelog"
    measured = copied.copy_from(source)
    assert measured[0] == size
    assert copied.copy_from(source) == measured, "again, after a crash"
    assert (data / "r").listed() == ["aa/state/0/57_a.changelog"]
    copied.copy_to(target, *measured)
    assert target.read_bytes() == source.read_bytes()
    assert has_content(target, *measured)
    copied.delete()
    copied.delete()
    assert (data / "r").listed() == []


def test_a_copy_of_other_content_is_refused(data: DataPath, tmp_path: Path) -> None:
    source, target, copied = tmp_path / "a", tmp_path / "b" / "a", data / "aa" / "a"
    source.write_bytes(b"first")
    measured = copied.copy_from(source)
    for content in (b"other", b"shorter", None):
        if content is None:
            copied.delete()
        else:
            source.write_bytes(content)
            copied.copy_from(source)
        assert outcome(lambda: copied.copy_to(target, *measured)) == "STATE_DAMAGED"
        assert not list(target.parent.iterdir()), "nothing looks like the file"
    source.unlink()
    with pytest.raises(FileNotFoundError):
        copied.copy_from(source)


@pytest.mark.parametrize("looks", [1, 2])
def test_a_file_that_goes_during_a_listing_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Regression: a temporary file was renamed, and what a former incarnation had left was not deleted."""
    (tmp_path / "here").write_text("here")
    (tmp_path / "gone").write_text("")
    look, left = Path.stat, [looks]

    def stat(path: Path, **options: Any) -> Any:
        if path.name == "gone":
            left[0] -= 1
            if left[0] == 0:
                path.unlink()
        return look(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert LocalData(tmp_path).files()["here"] == 4
