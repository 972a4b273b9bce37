"""Folders as sinks: each delivered epoch has a proof, and another writer makes one sink wait at most."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.errors import HomeError, SparkError
from falkirk.errors.conditions.spark import FOLDER_DAMAGED
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks import folder
from falkirk.runtime.spark.sinks.folder import FolderTarget, Proofs
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.theory.ids import EpochNumber
from tests.stores import Place
from tests.support import outcome, wait_until
from tests.unit.epochs.test_backpressure import session

LOG = "epochs:b"


def made(target: FolderTarget, rows: object, named: Path, being_made: Path, few: bool) -> None:
    """Make the folder of an epoch without rows."""
    named.mkdir()
    target._prove(named, named.name)


def proofs(store: object, sink: str = "s") -> Proofs:
    return Proofs(key=b"the key of the home", store=cast(Store, store), sink=sink)


def test_a_folder_tells_what_it_lost_from_what_was_moved_away(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderTarget, "_write", made)
    path = tmp_path / "sink"

    def deliver(first: int, last: int) -> None:
        for epoch in range(first, last):
            target.deliver(epoch, cast(Any, None))

    target = FolderTarget(fk.Files(str(path)), "deadbeef", proofs(store))
    deliver(0, 2)
    copy = shutil.copytree(path, tmp_path / "copy")
    deliver(2, 4)
    assert (target.visible(), target.delivered()) == (4, 4)
    for moved in path.glob("epoch=*"):
        shutil.rmtree(moved)
    assert (target.visible(), target.delivered()) == (4, 4), "its readers have moved the files"
    deliver(3, 4)
    assert not list(path.glob("epoch=*")), "otherwise an epoch would exist twice"
    shutil.rmtree(path)
    assert target.delivered() == 0
    shutil.copytree(copy, path, dirs_exist_ok=True)
    assert (target.visible(), target.delivered()) == (2, 2)


def test_a_folder_whose_last_note_was_not_written(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderTarget, "_write", made)
    target = FolderTarget(fk.Files(str(tmp_path)), "deadbeef", proofs(store))
    target.deliver(0, cast(Any, None))
    target._note(0)
    assert (target.visible(), target.delivered()) == (1, 0)
    target.deliver(0, cast(Any, None))
    assert (target.visible(), target.delivered()) == (1, 1)


def test_a_folder_of_an_older_falkirk_does_not_tell(tmp_path: Path, store: Store) -> None:
    (tmp_path / folder._NOTE).write_text(json.dumps({"application": "deadbeef"}))
    assert FolderTarget(fk.Files(str(tmp_path)), "deadbeef", proofs(store)).delivered() is None


class Written:
    """Rows whose files take long to write: meanwhile, something happens."""

    columns: tuple[str, ...] = ()

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile, self.write = meanwhile, self

    def select(self, *columns: object) -> "Written":
        return self

    def format(self, name: str) -> "Written":
        return self

    def options(self, **options: str) -> "Written":
        return self

    def save(self, path: str) -> None:
        self._meanwhile()
        Path(path).mkdir()


@pytest.mark.parametrize("asks", [True, False])
def test_a_former_owner_that_stood_still_publishes_no_epoch(
    tmp_path: Path, store: Store, place: Place, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """It stood still while it wrote the files of an epoch. The present owner may have cancelled that epoch since."""
    monkeypatch.setattr(folder, "sorted_by_place", lambda rows, few: rows)
    store.take_charge("the former owner")
    if not asks:
        monkeypatch.setattr(store, "require_charge", lambda: None)
    target = FolderTarget(fk.Files(str(tmp_path / "out")), "deadbeef", proofs(store))
    present = place.open()
    rows = cast(Any, Written(lambda: present.take_charge("the present owner")))
    delivered = outcome(lambda: target.deliver(EpochNumber(0), rows))
    assert delivered == ("HOME_TAKEN_OVER" if asks else None)
    assert bool([*(tmp_path / "out").glob("epoch=*")]) is not asks
    present.close()


@pytest.fixture
def out(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> FolderTarget:
    """A folder with two epochs."""
    monkeypatch.setattr(FolderTarget, "_write", made)
    target = FolderTarget(fk.Files(str(tmp_path / "out")), "deadbeef", proofs(store))
    target.deliver(0, cast(Any, None))
    target.deliver(1, cast(Any, None))
    return target


def test_a_folder_of_others_is_not_an_epoch(out: FolderTarget, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A program that may write the folder makes one of an epoch of the future, with the best proof that it can find.

    Before, it counted, and the application ended with `SINK_AHEAD`, again at each start.
    """
    for name, proof in (("epoch=0000000007", None), ("epoch=0000000009", "0" * 32), ("epoch=0000000008", "copied")):
        forged = out._path / name
        forged.mkdir()
        if proof == "copied":
            shutil.copy(out._path / "epoch=0000000001" / folder._PROOF, forged)
        elif proof is not None:
            (forged / folder._PROOF).write_text(proof)
    (out._path / "epoch=0000000006").mkdir()
    (out._path / "epoch=0000000006" / folder._PROOF).symlink_to(out._path / "epoch=0000000001" / folder._PROOF)
    again = FolderTarget(fk.Files(str(out._path)), "deadbeef", proofs(store))
    assert (again.visible(), again.delivered()) == (2, 2)
    assert "4 folders that this home has not written do not count" in caplog.text
    assert "epoch=0000000006" in caplog.text
    other = FolderTarget(fk.Files(str(out._path)), "deadbeef", proofs(store, "another sink of this home"))
    assert not other._is_proven("epoch=0000000001"), "a proof is one for its sink alone"


def test_a_folder_in_the_way_of_an_epoch_is_not_taken_for_it(out: FolderTarget) -> None:
    """Before, the epoch counted as delivered, with the rows of somebody else."""
    forged = out._path / "epoch=0000000002"
    forged.mkdir()
    with pytest.raises(SparkError) as told:
        out.deliver(2, cast(Any, None))
    assert told.value.condition == "RELEASE_FAILED"
    assert str(forged) in told.value.message
    assert out.delivered() == 2
    forged.rmdir()
    out.deliver(2, cast(Any, None))
    assert (out.visible(), out.delivered()) == (3, 3)


@pytest.mark.parametrize("proof", [{}, {"proof": "0" * 32}, {"proof": 5}, {"proof": "ä"}, "that of upto=2"])
def test_a_forged_note_leaves_no_epoch_out(out: FolderTarget, proof: dict[str, object] | str) -> None:
    """Before, a program that raised `upto` made Falkirk omit later epochs silently."""
    note = out._path / folder._NOTE
    known = json.loads(note.read_text())
    known = known | {"upto": 9} if isinstance(proof, str) else {"application": "deadbeef", "upto": 9, **proof}
    note.write_text(json.dumps(known))
    for ask in (out.visible, out.delivered, lambda: out.deliver(2, cast(Any, None))):
        with pytest.raises(HomeError) as told:
            ask()
        assert told.value.condition == "FOLDER_DAMAGED"
    assert "somebody else wrote it" in told.value.message


def test_what_an_older_falkirk_has_delivered_needs_no_proof(tmp_path: Path, store: Store) -> None:
    note = tmp_path / folder._NOTE
    note.write_text(json.dumps({"application": "deadbeef", "upto": 2}))
    for number in range(3):  # the last note was not written
        (tmp_path / f"epoch={number:010d}").mkdir()
    for _ in range(2):
        target = FolderTarget(fk.Files(str(tmp_path)), "deadbeef", proofs(store))
        assert (target.visible(), target.delivered()) == (3, 2)
        (tmp_path / "epoch=0000000003").mkdir(exist_ok=True)  # by somebody else, after the first look
    target.deliver(2, cast(Any, None))
    assert target.delivered() == 3
    note.write_text(json.dumps({"application": "deadbeef", "upto": 4}))
    with pytest.raises(HomeError):
        target.delivered()


def test_a_folder_that_others_have_spoilt_waits_and_is_named(store: Store, tmp_path: Path) -> None:
    """It concerns one sink. Before, it ended the application."""
    epochs = EpochLog(LOG, "b", LocalData(tmp_path), store)
    n = epochs.decide({}, {}, {}, 0.0)
    (tmp_path / f"{n}-aa").mkdir()
    epochs.record(n, folder=f"{n}-aa", rows=1, dead=0, state=None, saved=True)
    is_spoilt = [True]

    def ask(*arguments: object, **named: object) -> int:
        if is_spoilt[0]:
            raise FOLDER_DAMAGED.error(where="out/_falkirk.json", why="somebody else wrote it")
        return 0

    target = SimpleNamespace(visible=ask, delivered=ask, deliver=lambda *rows, few: ask() or None)
    releaser = EpochReleaser(epochs, {"out": cast(Any, target)}, None, StructType())

    def release() -> int:
        releaser._not_before_s = 0.0
        releaser.release(session(), 0, 1)
        wait_until(lambda: not releaser._is_at_work(), 30, "the release")
        return releaser.release(session(), 0, 1)

    for ask_it in (releaser.visible, lambda: releaser.remains(1), lambda: 1 - release()):
        releaser.detail, releaser._not_before_s = "", 0.0
        assert ask_it() == 1, "all may be there, and nothing is known to be released"
        assert "out/_falkirk.json" in releaser.detail
        assert "somebody else wrote it" in releaser.detail
    is_spoilt[0] = False
    assert release() == 1
    assert releaser.detail == ""
