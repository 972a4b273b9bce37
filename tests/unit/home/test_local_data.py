"""The files of a folder, while other threads delete in it."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from falkirk.platform.local_data import LocalData


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a/1", "b/2", "c/d/3"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x" * int(name[-1]))
    return tmp_path


def scanned(monkeypatch: pytest.MonkeyPatch, folder: Path, before: Any) -> None:
    """Call `before` when a folder is scanned for the first time."""
    scan, calls = os.scandir, [before]

    def scandir(path: Any = ".") -> Any:
        if isinstance(path, str | os.PathLike) and Path(path) == folder and calls:  # rmtree scans descriptors
            calls.pop()()
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_folder_that_vanishes_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strays' thread deletes it after its name was listed."""
    assert LocalData(folder).files() == {"a/1": 1, "b/2": 2, "c/d/3": 3}
    scanned(monkeypatch, folder / "b", lambda: shutil.rmtree(folder / "b"))
    assert LocalData(folder).files() == {"a/1": 1, "c/d/3": 3}
    assert LocalData(folder / "b").files() == LocalData(folder / "a/1").files() == {}


def test_a_folder_that_can_not_be_read_is_no_empty_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    scanned(monkeypatch, folder / "b", fail)
    with pytest.raises(OSError, match="Input/output error"):
        LocalData(folder).files()
