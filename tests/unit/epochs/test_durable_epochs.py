"""Epochs and power loss: the data that the store has recorded is on the disk, and missing data is detected.

The disk is a port over `os.fsync` (`tests/disks.py`). The tests with Spark are in
`tests/integration/homes/test_power_loss.py`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.errors import HomeError
from falkirk.platform import durable, local_data
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.inputs import Inputs, refuse_damaged
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.sinks import folder as folders
from falkirk.runtime.spark.sinks.folder import FolderTarget
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.steps.batch import iteration, loop_files
from falkirk.steps.batch.iteration import Iterating
from falkirk.steps.batch.loop_files import LocalLoopFiles, LoopFolders
from falkirk.steps.differential.files import FlowFiles
from falkirk.theory.ids import EpochNumber
from tests.disks import ForgetfulDisk, SyncedBefore
from tests.support import on_disk, wait_until
from tests.unit.epochs.test_backpressure import Sink, session
from tests.unit.hostile.test_random_files import Decisions
from tests.unit.kafka.test_folder_sinks import proofs

CONTENT = b"PAR1" + bytes(range(256)) * 4 + b"PAR1"


def write(folder: Path, *names: str) -> None:
    """Write files in the way of Spark, without a sync."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(CONTENT)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a batch's epochs, in a folder that is already synced."""
    durable.sync_folder(tmp_path)
    return tmp_path / "regions" / "b"


@pytest.fixture
def epochs(store: Store, home: Path) -> EpochLog:
    return EpochLog("epochs:b", "b", LocalData(home), store)


def complete(epochs: EpochLog, *, state: str | None = None) -> Epoch:
    n = epochs.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    write(on_disk(epochs.path(f"{n}-aa")), "_SUCCESS", "part-0.parquet", "part-1.parquet", "_dead0/part-0.parquet")
    if state is not None:
        write(on_disk(epochs.path(state)), "own/part-0.parquet", "note.json")
    epochs.record(n, folder=f"{n}-aa", rows=2, dead=1, state=state, saved=state is not None)
    return epochs.epochs()[-1]


def test_what_is_recorded_is_there_after_a_loss_of_power(
    epochs: EpochLog, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ForgetfulDisk(tmp_path, monkeypatch)
    durable.sync_folder(tmp_path)
    durable.make_folder(home)
    durable.sync_folder(tmp_path)
    epoch = complete(epochs, state="0-aa-state")
    complete(epochs)
    on_disk(epochs.path("later-state")).mkdir()
    write(on_disk(epochs.path("later-state")), "note.json")
    epochs.record_state(1, "later-state")
    write(on_disk(epochs.path("2-aa")), "part-0.parquet")  # that epoch is not recorded
    assert disk.lose_power(tmp_path / "regions") == ["regions/b/2-aa"]
    assert epochs.results(epoch).name == "0-aa"
    assert [epochs.state(e).name for e in epochs.epochs()] == ["0-aa-state", "later-state"]


def test_a_file_that_is_written_at_once_is_there_after_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity of a home, its shape, the processes to kill: a shorter file would be `HOME_DAMAGED`."""
    disk, file = ForgetfulDisk(tmp_path, monkeypatch), tmp_path / "falkirk.json"
    for text in ("first", "the second one"):
        durable.write_atomically(file, text)
        assert disk.lose_power(tmp_path) == []
        assert file.read_text() == text


def _epoch(epochs: EpochLog, folder: Path, patch: pytest.MonkeyPatch) -> None:
    complete(epochs)


def _state(epochs: EpochLog, folder: Path, patch: pytest.MonkeyPatch) -> None:
    complete(epochs, state="0-aa-state")


def _later_state(epochs: EpochLog, folder: Path, patch: pytest.MonkeyPatch) -> None:
    complete(epochs)
    write(on_disk(epochs.path("later-state")), "own/part-0.parquet")
    epochs.record_state(0, "later-state")


def _runs(epochs: EpochLog, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """An epoch of an iteration writes a run, and a note that names it."""
    notes = dict[str, str]()

    class Computing:
        """A flow that has computed an epoch."""

        def __init__(self, graph: object, session: object, files: FlowFiles, partitions: int) -> None:
            self._folder = files.folder

        def advance(self, state: object, taken: object, tag: str) -> Any:
            write(self._folder, "0-aa/run.arrow")
            found = SimpleNamespace(files=lambda: {"0-aa/run.arrow"}, text=lambda: "{}")
            changes = SimpleNamespace(withColumnRenamed=lambda before, after: None)
            return SimpleNamespace(state=found, rounds=(), jobs=1, changes=changes)

    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]")))
    frame.columns, frame.select = ["difference", iteration.CHANGE], lambda *columns: frame
    frame.persist, frame.unpersist = lambda: frame, lambda: None
    call = SimpleNamespace(
        slot=lambda name: "iterate-1", files=LoopFolders(epochs.files()).of, noted=lambda slot: None,
        note=notes.__setitem__, reported={}, epoch=SimpleNamespace(number=0),
    )  # fmt: skip
    patch.setattr(iteration, "current", lambda name: call)
    patch.setattr(iteration, "Flow", Computing)
    patch.setattr(iteration, "batch_partitions", lambda session: 1)
    patch.setattr(iteration, "_changes", lambda frame: frame)
    processor = SimpleNamespace(iteration=SimpleNamespace(sends="changes"), reads=("events",), name="b")
    iterating = Iterating(cast(Any, processor))
    iterating._graph, iterating._made_for = cast(Any, object()), frame.sparkSession.sparkContext
    iterating(frame)
    state = on_disk(epochs.path("0-aa-state"))
    state.mkdir(parents=True)
    (state / "iterate-1.json").write_text(notes["iterate-1"])
    complete(epochs, state="0-aa-state")


def _folder(epochs: EpochLog, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A folder sink gets an epoch."""
    rows: Any = SimpleNamespace(columns=["n"])
    rows.select = lambda *columns: rows
    rows.write = rows
    rows.format = rows.options = lambda *arguments, **more: rows
    rows.save = lambda path: write(Path(path), "part-0.json")
    patch.setattr(folders, "sorted_by_place", lambda data, few: rows)
    patch.setattr(folders, "_written", lambda data, name, form: name)
    FolderTarget(fk.Files(str(folder), "json"), "deadbeef", proofs(Decisions())).deliver(EpochNumber(0), rows)


#: The writers, with the thing that each records and the modules whose `sync` it needs.
WRITERS = {
    _epoch: ("epochs", local_data), _state: ("states", local_data), _later_state: ("states", local_data),
    _runs: ("runs", loop_files), _folder: ("folders", folders),
}  # fmt: skip


@pytest.mark.parametrize("off", [None, "the files", "their folder"])
@pytest.mark.parametrize("writer", WRITERS)
def test_each_writer_syncs_before_the_record(
    writer: Callable[[EpochLog, Path, pytest.MonkeyPatch], None],
    off: str | None,
    epochs: EpochLog,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the moment of the record, nothing to which it refers would be lost. With one sync off, something would."""
    disk = ForgetfulDisk(tmp_path, monkeypatch)
    durable.make_folder(home)
    durable.sync_folder(home.parent)
    records = SyncedBefore(disk, monkeypatch, home.parent)
    kind, module = WRITERS[writer]
    if off is not None:
        real = durable.sync

        def without(folder: Path, *names: Any) -> durable.Manifest:
            with monkeypatch.context() as patch:
                if off == "the files":
                    patch.setattr(durable, "_sync_file", lambda path: [path.stat().st_size, 0])
                else:
                    patch.setattr(durable, "sync_folder", lambda folder: None)
                return real(folder, *names)

        monkeypatch.setattr(module, "sync", without)
    writer(epochs, tmp_path / "out", monkeypatch)
    assert records.seen[kind] == 1
    assert bool(records.early) == (off is not None), records.early


def test_without_a_sync_what_is_lost_is_found(
    epochs: EpochLog, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may also ignore a sync. The error then names the file."""
    disk = ForgetfulDisk(tmp_path, monkeypatch)
    durable.make_folder(home)
    durable.sync_folder(tmp_path)
    monkeypatch.setattr(durable.os, "fsync", lambda opened: None)
    epoch = complete(epochs)
    assert disk.lose_power(tmp_path / "regions")
    with pytest.raises(HomeError) as lost:
        epochs.results(epoch)
    assert lost.value.condition == "STATE_DAMAGED"


def _delete(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    path.write_bytes(CONTENT[:100])


def _overwrite(path: Path) -> None:
    """Overwrite with the same length, as if blocks were allocated to the file but never written."""
    path.write_bytes(bytes(len(CONTENT)))


HARMS = (_delete, _truncate, _overwrite)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["part-1.parquet", "_dead0/part-0.parquet", "_SUCCESS"])
def test_a_damaged_epoch_is_refused_by_all_who_read_it(
    harm: Callable[[Path], None], name: str, epochs: EpochLog, tmp_path: Path
) -> None:
    """Without the manifest, Spark reads the other files, or fails on every try."""
    epoch = complete(epochs)
    file = on_disk(epochs.path("0-aa") / name)
    harm(file)
    fresh = EpochLog(epochs.name, "b", epochs.folder, epochs._store)
    given = SimpleNamespace(name="b", log="epochs:b", topic=None, folder=None, sliced=False, stamped=None, view=False)
    batch = SimpleNamespace(name="c", cut=None, inputs=(given,))
    reading = Epoch(number=0, first={}, last={"epochs:b": {0: 1}}, then={}, views={}, cut_at_s=0.0)

    def reads() -> None:
        Inputs(
            cast(Any, None), cast(Any, None), cast(Any, batch), reading, {"epochs:b": fresh}, {}, {}, cast(Any, None)
        )

    def releases() -> None:
        sink = Sink(fails=False)
        sink.open.set()
        releaser = EpochReleaser(fresh, {"s": cast(Any, sink)}, None, StructType())
        wait_until(lambda: releaser.release(session(), 0, 1), 30, "the release")

    for read in (lambda: fresh.slices(epoch), reads, releases):
        with pytest.raises(HomeError) as refused:
            read()
        assert (refused.value.condition, refused.value.parameters["file"]) == ("STATE_DAMAGED", str(file))


@pytest.mark.parametrize("harm", HARMS[:2])
def test_a_file_that_is_lost_after_it_was_checked_is_found(harm: Callable[[Path], None], epochs: EpochLog) -> None:
    epoch = complete(epochs)
    epochs.results(epoch)
    harm(on_disk(epochs.path("0-aa") / "part-0.parquet"))
    with pytest.raises(HomeError) as refused:
        epochs.results(epoch)
    assert refused.value.condition == "STATE_DAMAGED"


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_state_is_refused(harm: Callable[[Path], None], epochs: EpochLog) -> None:
    epoch = complete(epochs, state="0-aa-state")
    harm(on_disk(epochs.path("0-aa-state") / "own" / "part-0.parquet"))
    with pytest.raises(HomeError) as refused:
        epochs.state(epoch)
    assert refused.value.condition == "STATE_DAMAGED"


def test_a_view_whose_newest_epoch_is_lost_does_not_wait_for_ever(epochs: EpochLog) -> None:
    epoch = complete(epochs)
    for path in sorted(on_disk(epochs.path("0-aa")).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    on_disk(epochs.path("0-aa")).rmdir()
    assert epochs.newest() == 0, "otherwise a reader would wait for the first epoch of the view"
    with pytest.raises(HomeError) as refused:
        epochs.results(epoch)
    assert refused.value.condition == "STATE_DAMAGED"


def test_an_epoch_of_an_older_falkirk_has_no_manifest(epochs: EpochLog, store: Store) -> None:
    n = epochs.decide({}, {}, {}, 0.0)
    write(on_disk(epochs.path("0-aa")), "part-0.parquet")
    store.add_checkpoint("b", n, {"folder": "0-aa", "rows": 1, "dead": 0, "state": None, "saved": True})
    assert epochs.results(epochs.epochs()[0]) == epochs.path("0-aa")


@pytest.mark.parametrize("at", [0, durable.END_BYTES + 7, -1])
def test_the_ends_of_a_large_file_are_checked(at: int, tmp_path: Path) -> None:
    content = bytearray(2 * durable.END_BYTES - 9 if at else 3 * durable.END_BYTES)
    file = tmp_path / "file"
    file.write_bytes(content)
    manifest = durable.sync(tmp_path)
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(HomeError) as refused:
        durable.check_files(tmp_path, manifest)
    assert refused.value.parameters["file"] == str(file)
    durable.check_files(tmp_path, manifest, contents=False)


@pytest.mark.parametrize("lost", ["0-aa/part-0.parquet", "0-aa-state/note.json"])
@pytest.mark.parametrize("view", [True, False])
def test_an_epoch_that_fails_looks_at_what_it_reads(lost: str, view: bool, epochs: EpochLog) -> None:
    """Spark's error for a lost file looks like any other failure, which would be retried."""
    complete(epochs, state="0-aa-state")
    given = SimpleNamespace(log="epochs:b", view=view)
    batch = cast(Any, SimpleNamespace(log="epochs:b", inputs=(given, SimpleNamespace(log="topic", view=False))))
    last = {"topic": {0: 1}} | ({} if view else {"epochs:b": {0: 1}})
    failed = Epoch(number=1, first={}, last=last, then={}, views={"epochs:b": 0} if view else {}, cut_at_s=0.0)
    refuse_damaged(batch, failed, {"epochs:b": epochs})
    on_disk(epochs.folder / lost).unlink()
    with pytest.raises(HomeError) as refused:
        refuse_damaged(batch, failed, {"epochs:b": epochs})
    assert (refused.value.condition, refused.value.parameters["file"]) == ("STATE_DAMAGED", str(epochs.folder / lost))


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_file_of_an_iteration_is_refused(
    harm: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised before a round of the epoch is computed."""
    file = tmp_path / "0-aa" / "run.arrow"
    write(tmp_path, "0-aa/run.arrow")
    note = json.dumps({"partitions": 1, "state": "", "files": durable.sync(tmp_path)})
    context = SimpleNamespace(master="local[2]")
    frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    call = SimpleNamespace(
        slot=lambda name: "iterate-1", files=lambda slot: LocalLoopFiles(tmp_path), noted=lambda slot: note
    )
    monkeypatch.setattr(iteration, "current", lambda name: call)
    iterating = Iterating(cast(Any, SimpleNamespace(iteration=object(), reads=("events",))))
    iterating._graph, iterating._made_for = cast(Any, object()), context
    harm(file)
    with pytest.raises(HomeError) as refused:
        iterating(cast(Any, frame))
    assert (refused.value.condition, refused.value.parameters["file"]) == ("STATE_DAMAGED", str(file))


@pytest.mark.parametrize("torn", [{}, {"first": 3, "last": {}, "views": {}, "cut_at_s": 0}, None, [1]])
def test_a_torn_record_of_an_epoch_is_told_with_its_number(epochs: EpochLog, store: Store, torn: object) -> None:
    complete(epochs)
    store.record_decision("epoch", "b", 1, torn)
    with pytest.raises(HomeError) as caught:
        epochs.epochs()
    assert (caught.value.condition, caught.value.parameters["epoch"]) == ("STATE_DAMAGED", 1)
    store.forget_epochs("epoch", "b", EpochNumber(2))
    store.record_decision("epoch", "b", 2, {"first": {}, "last": {}, "views": {}, "cut_at_s": 0})
    store.add_checkpoint("b", EpochNumber(2), {"folder": "2-aa", "unknown": 1})
    with pytest.raises(HomeError) as caught:
        EpochLog(epochs.name, "b", epochs.folder, store).epochs()
    assert (caught.value.condition, caught.value.parameters["epoch"]) == ("STATE_DAMAGED", 2)
