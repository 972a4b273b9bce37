"""Large files and rows in an object store: the client repeats a failed part of them, because nothing else does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from falkirk.platform.object_data import WRITTEN, ObjectData, data_at
from tests.objects import BUCKET, ObjectStore


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


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
