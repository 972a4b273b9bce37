"""A folder that all workers of a run share is made once, and never in part."""

from pathlib import Path

import pytest

from tests.running.shared import made_once


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "X.class").write_bytes(b"x")

    first = made_once(tmp_path, "classes", make)
    assert made_once(tmp_path, "classes", make) == first
    assert [file.name for file in first.iterdir()] == ["X.class"]
    assert len(made) == 1


def test_a_folder_that_was_made_in_part_is_made_anew(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("the compiler refused it")

    with pytest.raises(RuntimeError):
        made_once(tmp_path, "classes", fail)
    whole = made_once(tmp_path, "classes", lambda folder: (folder / "whole").touch())
    assert [file.name for file in whole.iterdir()] == ["whole"]
