"""Large files and rows in an object store: the client repeats a failed part of them, because nothing else does.

And paths that another process gets, and folders in folders that are removed.
"""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.fs import FileSelector, FileType

from falkirk.platform import object_data
from falkirk.platform.object_data import WRITTEN, ObjectData, data_at
from falkirk.recovery.decision_store import Store
from falkirk.theory.ids import BatchId
from tests.hdfs_server import is_chosen
from tests.objects import BUCKET, ObjectStore
from tests.support import outcome, wait_until
from tests.unit.live.machines import Machine


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


def test_another_process_reads_the_path_that_it_gets(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor has credentials of its own, and learns from the path which server to ask."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    data = data_at(f"s3a://{BUCKET}/sent")
    (data / "x").write_text("there")
    sent = pickle.dumps(data / "x")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.delenv("AWS_REGION")
    assert pickle.loads(sent) == data / "x"
    assert pickle.loads(sent).read_text() == "there"


def test_one_failed_part_of_a_large_file_does_not_repeat_the_others(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of `ObjectData` repeats a part alone, and a store that is busy refuses one of hundreds."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    file = data_at(f"s3a://{BUCKET}/large") / "state"
    (tmp_path / "state").write_bytes(bytes(21_000_000))
    once = ["refuse"]
    began = len(objects.requests)
    with objects.failing(lambda method, path: once.pop() if once and "partNumber=2" in path else ""):
        measured = file.copy_from(tmp_path / "state")
    sent = [path.partition("partNumber=")[2][:1] for method, path in objects.requests[began:] if method == "PUT"]
    assert (once, sorted(sent)) == ([], ["1", "2", "2", "3"])
    reads, once = [0], ["refuse"]

    def second(method: str, path: str) -> str:
        reads[0] += method == "GET"
        return once.pop() if once and reads[0] == 2 else ""

    with objects.failing(second):
        file.copy_to(tmp_path / "copy", *measured)
    parts = reads[0]
    assert not once
    reads[0] = -1000
    with objects.failing(second):
        file.copy_to(tmp_path / "copy", *measured)
    assert parts == reads[0] + 1000 + 1, "one part more"


def write_rows(objects: ObjectStore, folder: ObjectData, rows: pa.Table) -> None:
    """Write a file of rows, as a Spark job does, with the list of the commit protocol."""
    parquet.write_table(rows, f"{folder.key}/part-0.parquet", filesystem=objects.system())
    with objects.system().open_output_stream(f"{folder.key}/{WRITTEN}") as file:
        file.write(json.dumps({"files": {"part-0.parquet": 1}}).encode())
    folder.saved()


def test_a_read_of_rows_survives_a_request_that_fails_once(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`falkirk state` reads with pyarrow alone, which would take it for a state that can't be read."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    folder = data_at(f"s3a://{BUCKET}/rows") / "0-aa"
    rows = pa.table({"n": [1, 2, 3]})
    write_rows(objects, folder, rows)
    system, files = folder.arrow()
    once = ["refuse"]
    with objects.failing(lambda method, path: once.pop() if once else ""):
        assert parquet.read_table(files[0], filesystem=system).equals(rows)
    assert not once


def test_deleted_checkpoints_leave_no_object(objects: ObjectStore, tmp_path: Path) -> None:
    """Regression: for each folder in which an object was deleted, pyarrow left an empty object, at each checkpoint."""
    data, store = ObjectData(objects.system(), "s3a", f"{BUCKET}/left"), Store(tmp_path / "decisions.db")

    def left() -> set[str]:
        """Return the folders without files: each is an object."""
        found = objects.system().get_file_info(FileSelector(data.key, recursive=True))
        around = {str(parent) for each in found if each.type is FileType.File for parent in Path(each.path).parents}
        return {each.path for each in found if each.type is FileType.Directory} - around

    first = Machine(tmp_path, store, "first", data)
    first.begin()
    for batch in range(4):
        first.commit(batch)
    (first.spark / "state/0/0/1_a0.changelog").unlink()  # by Spark's maintenance
    first.commit(4)
    (tmp_path / "a").write_text("of a former version, or of an upload that was cut off")
    for name in ("former/1-1/state/a", "former/2-1/state/a"):
        (data / name).copy_from(tmp_path / "a")
    (data / "former/1-1/state/a").delete()
    assert left(), "the client leaves them"
    first.files.keep_only([BatchId(4)])
    second = Machine(tmp_path, store, "second", data)
    assert second.begin(4) is None
    second.commit(5)
    (second.spark / "state/0/1/1_b0.changelog").unlink()
    second.commit(6)
    second.files.keep_only([BatchId(6)])

    def is_clean() -> bool:
        return not left() and set(data.listed()) == {file.place for file in store.state_files("r")}

    wait_until(is_clean, 4, lambda: f"the deletions; left: {left()}, {data.listed()}")
    assert Machine(tmp_path, store, "third", data).begin(6) is None
    store.close()


def test_a_removal_leaves_no_file_of_inner_folders(objects: ObjectStore) -> None:
    """A server that keeps objects in folders refuses to delete one that has files. pyarrow asks for folders first."""
    remote = objects.data("removed")
    folder = remote / "0-aa"
    for name in ("1.zip", "SSTs/1.sst", "SSTs/2.sst"):
        (folder / f"state/0/0/{name}").write_text("content")
        (folder / f"state/0/1/{name}").write_text("content")
    folder.remove()
    assert folder.sizes() == {}
    assert "0-aa" not in [child.name for child in remote.children()]


@pytest.mark.skipif(is_chosen(), reason="an HDFS has no such requests")
def test_a_server_that_deletes_single_objects_alone_keeps_no_file(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_data, "_PAUSES_S", (0.0, 0.0))
    folder = objects.data("single") / "0-aa"
    for name in ("state/0/0/1.zip", "state/0/1/1.zip"):
        (folder / name).write_text("content")
    with objects.failing(lambda method, path: "refuse" if path.endswith("?delete") else ""):
        assert outcome(folder.remove) == "DATA_AWAY"
    assert set(folder.sizes()) <= {"_removed"}
