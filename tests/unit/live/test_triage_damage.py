"""Triage of states that Spark could not load: proof of damage, and failures that may pass."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import SparkError
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live.checkpoint_files import LocalCheckpoints
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.spark.live.triage import damage_of
from tests.unit.live.test_checkpoint_files import write

FOLDER = Path("/data/shop/regions/counts")
FILE = f"file:{FOLDER}/state/0/1/7_5c2e1a3b-0d4f-4e7a-9f00-1b2c3d4e5f60.changelog"
PLAN = "\n=== Streaming Query ===\nProject [concat(a, Caused by: java.io.EOFException)]"
LOADING = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. SQLSTATE: 58030"


def failed(*lines: str) -> Exception:
    """Return the error of a query whose task failed with these lines, as PySpark gives it."""
    text = "\n".join(lines)
    return RuntimeError(f"[STREAM_FAILED] Query terminated with exception: Job aborted: Lost task 1.0: {text}")


def caused(cause: str) -> Exception:
    return failed(f"org.apache.spark.SparkException: {LOADING}", "\tat org.apache.spark.sql.X(Y.scala:1)", cause)


@pytest.mark.parametrize(
    "error",
    [
        failed(
            f"[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed, the file may be corrupted. "
            f"File: {FILE}"
        ),
        caused(f"Caused by: org.apache.spark.SparkException: [CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] {FILE}"),
        failed(f"[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] Error reading {FILE} does not exist."),
        caused(f"Caused by: java.io.FileNotFoundException: File {FILE} does not exist"),
        caused(f"Caused by: java.io.EOFException: {FILE}"),
    ],
)
def test_a_damaged_file_is_found_with_all_checkpoints_that_rest_on_it(error: Exception) -> None:
    """Batch 6 wrote the file of version 7; the loaded checkpoint may be a later one."""
    found = damage_of(error, FOLDER)
    assert found is not None
    assert found.first == 6


@pytest.mark.parametrize(
    "cause",
    [
        "Caused by: java.io.IOException: Stream is corrupted",
        "Caused by: java.util.zip.ZipException: invalid stored block lengths",
        "Caused by: com.github.luben.zstd.ZstdIOException: Data corruption detected",
        "Caused by: org.apache.hadoop.fs.ChecksumException: Checksum error",
        "Caused by: org.rocksdb.RocksDBException: Corruption: block checksum mismatch",
        "Caused by: java.io.UTFDataFormatException: malformed input around byte 4",
    ],
)
def test_content_that_can_not_be_read_is_damage(cause: str) -> None:
    found = damage_of(caused(cause), FOLDER)
    assert found is not None
    assert found.first is None


@pytest.mark.parametrize(
    "error",
    [
        caused("Caused by: java.io.IOException: No space left on device"),
        caused("Caused by: java.io.IOException: Disk quota exceeded"),
        caused("Caused by: java.io.IOException: Input/output error"),
        caused("Caused by: java.lang.InterruptedException"),
        caused("Caused by: java.nio.channels.ClosedByInterruptException"),
        caused("Caused by: java.util.concurrent.TimeoutException: Futures timed out after [10 seconds]"),
        caused("Caused by: org.rocksdb.RocksDBException: IO error: While lock file: /tmp/spark/LOCK: busy"),
        caused(
            "Caused by: java.io.FileNotFoundException: /tmp/spark-1/StateStoreId/CURRENT (No such file or directory)"
        ),
        caused("Caused by: java.lang.IllegalStateException: something that nobody thought of"),
        failed("[CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR] could not be acquired after 60000 ms"),
        failed("[CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY] Could not load"),
        failed(
            f"[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] Error reading {FILE} does not exist.",
            f"Caused by: java.io.FileNotFoundException: {FILE} (Too many open files)",
        ),
        failed(
            "[CANNOT_LOAD_STATE_STORE.AUTO_SNAPSHOT_REPAIR_FAILED] Failed to load snapshot version 6",
            "Caused by: java.io.IOException: No space left on device",
        ),
        failed("[CANNOT_LOAD_STATE_STORE.KEY_ROW_FORMAT_VALIDATION_FAILURE] the query changed"),
        failed("java.lang.IllegalStateException: no state", "Caused by: java.io.EOFException"),
    ],
)
def test_what_may_pass_proves_nothing(error: Exception) -> None:
    """Before, every CANNOT_LOAD_STATE_STORE cost a checkpoint, and retries skipped healthy ones one by one."""
    assert damage_of(error, FOLDER) is None


def test_a_cause_that_java_keeps_apart_counts() -> None:
    error = SparkError("X", LOADING)
    assert damage_of(error, FOLDER) is None
    cause = SparkError("X", "the end of a file")
    cause._stackTrace = "java.io.EOFException\n\tat …"  # type: ignore[attr-defined]
    error._cause = cause  # type: ignore[attr-defined]
    assert damage_of(error, FOLDER) is not None


def region_of(folder: Path, store: Store, restored: int) -> LiveRegion:
    """Return a region that was started from a checkpoint, with the parts that report checkpoints."""
    live = LiveRegion.__new__(LiveRegion)
    live.logs = cast(Any, SimpleNamespace(name="counts", source="pages", sources=("pages",), output="counts", views=()))
    live.region = cast(Any, SimpleNamespace(name="counts"))
    live._store, live._checkpoint, live.damaged, live.query = store, folder, set(), None
    live.files = LocalCheckpoints(folder, "pages")
    live.opening = cast(Any, SimpleNamespace(restored_batch=restored))
    first = {"pages": {0: 0, 1: 0}}
    live._place = cast(Any, SimpleNamespace(oldest=lambda topic: {0: 0, 1: 0}))
    store.create_region("counts", cast(Any, SimpleNamespace(fingerprint={}, start_offsets=first, partitions={})), {})
    return live


def test_what_is_damaged_stays_so_until_it_is_dropped(tmp_path: Path, store: Store) -> None:
    """A new host and a command both know of the damage; a new checkpoint with the same number is another one."""
    live = region_of(write(tmp_path / "checkpoint", 5), store, restored=4)
    live.distrust_checkpoints(2, "torn")
    live.distrust_checkpoints(2, "torn again")
    assert store.distrusted("counts") == {2, 3, 4}
    assert [p.number for p in live.checkpoints()] == [-1, 0, 1]
    store.forget_distrust_after("counts", 2)
    assert store.distrusted("counts") == {2}
    assert [p.number for p in live.checkpoints()] == [-1, 0, 1, 3, 4]


def test_only_the_checkpoint_that_was_loaded_is_distrusted_where_no_file_is_named(tmp_path: Path, store: Store) -> None:
    live = region_of(write(tmp_path / "checkpoint", 5), store, restored=3)
    live.distrust_checkpoints(None, "torn")
    assert store.distrusted("counts") == {3}
