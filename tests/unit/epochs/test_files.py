"""Files as a log: the number of each file is decided once, and a changed or missing file is reported."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import FalkirkError, InternalError, LogError
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs import files
from falkirk.runtime.spark.epochs.files import FileLog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the source."""
    made = tmp_path / "in"
    made.mkdir()
    return made


def log(folder: Path, store: Store, **options: str) -> FileLog:
    """Return the log as a new process sees it."""
    endpoint = fk.Files(str(folder), options.get("format", "json"), schema="n INT")  # type: ignore[arg-type]
    return FileLog("orders", endpoint, store, poll_s=0.0)


def put(folder: Path, name: str, text: str = "{}", *, changed_at_s: int = 1_000) -> Path:
    """Add a file by the protocol."""
    path, unfinished = folder / name, folder / f".{name}"
    unfinished.write_text(text)
    os.utime(unfinished, (changed_at_s, changed_at_s))
    unfinished.rename(path)
    return path


def names(found: FileLog, first: int = 0) -> list[str]:
    return [path.name for path in found.paths(first, found.end())]


def test_numbers_are_decided_once_whatever_comes_later(folder: Path, store: Store) -> None:
    put(folder, "b", changed_at_s=1)
    put(folder, "c", changed_at_s=3)
    put(folder, "a", changed_at_s=3)
    orders = log(folder, store)
    assert names(orders) == ["b", "a", "c"]
    put(folder, "0", changed_at_s=0)  # older, but found later
    assert names(orders) == ["b", "a", "c", "0"]
    assert names(log(folder, store)) == ["b", "a", "c", "0"], "another process uses other numbers"
    assert list(log(folder, store).paths(1, 3).values()) == [1, 2]


def test_a_crash_between_numbering_and_reading_numbers_nothing_twice(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a")
    real = Store.record_decision

    def cut_off(self: Store, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        raise InternalError("CUT_OFF", "behind the decision")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "record_decision", cut_off)
        with pytest.raises(InternalError):
            log(folder, store).end()
    put(folder, "b")
    assert names(log(folder, store)) == ["a", "b"]


def test_without_the_decision_a_replay_would_read_something_else(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "record_decision", lambda *arguments: None)
    put(folder, "b", changed_at_s=2)
    before = names(log(folder, store))
    put(folder, "a", changed_at_s=1)
    assert names(log(folder, store))[: len(before)] != before


def test_a_file_is_left_alone_while_it_is_being_written(folder: Path, store: Store) -> None:
    for name in ("_orders.json", ".orders.json"):
        (folder / name).write_text("{}")
    (folder / "empty.json").touch()
    (folder / "folder.json").mkdir()
    orders = log(folder, store)
    assert orders.end() == 0
    (folder / "_orders.json").rename(folder / "orders.json")
    assert names(orders) == ["orders.json"]


def test_a_parquet_file_without_its_end_is_left_alone(folder: Path, store: Store) -> None:
    orders = log(folder, store, format="parquet")
    torn = folder / "torn.parquet"
    torn.write_bytes(b"PAR1 and half of a row gro")
    put(folder, "not.parquet", "no parquet at all")
    assert orders.end() == 0
    torn.write_bytes(b"PAR1 and a row group PAR1")
    assert names(orders) == ["torn.parquet"]


STRANGE = ("12:00.json", "a[1].json", "a*", "a?b", "{a}", "line\nbreak", os.fsdecode(b"\xff.json"))


@pytest.mark.parametrize("name", STRANGE)
def test_a_name_that_spark_can_not_read_is_skipped_and_reported(
    folder: Path, store: Store, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Before, one such name ended the application: anybody who may write to the folder could stop it."""
    path = put(folder, name)
    put(folder, "honest.json")
    orders = log(folder, store)
    assert names(orders) == ["honest.json"]
    assert orders.skipped == {name: "Spark can't read such a name"}
    assert ascii(name) in orders.report()
    assert orders.report().isascii()
    orders.end()
    assert len(caplog.records) == 1, "it is reported once"
    path.rename(folder / "renamed.json")
    assert names(orders) == ["honest.json", "renamed.json"]
    assert (orders.skipped, orders.report()) == ({}, "")


def test_a_folder_that_spark_can_not_read_is_refused(tmp_path: Path, store: Store) -> None:
    strange = tmp_path / "12:00"
    strange.mkdir()
    with pytest.raises(LogError) as told:
        log(strange, store).require()
    assert (told.value.condition, told.value.parameters["file"]) == ("FILE_NAME_INVALID", str(strange))


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file that the writer of the folder may not read."""
    made = tmp_path / "private.json"
    made.write_text('{"n": 1}')
    return made


def test_a_link_is_not_followed(folder: Path, store: Store, private: Path) -> None:
    """Before, the content of the private file reached the sink."""
    (folder / "link.json").symlink_to(private)
    (folder / "broken.json").symlink_to("nowhere")
    put(folder, "honest.json")
    orders = log(folder, store)
    assert names(orders) == ["honest.json"]
    assert orders.skipped == dict.fromkeys(("link.json", "broken.json"), "a symbolic link")


def test_a_link_that_takes_the_place_of_a_file_is_not_read(folder: Path, store: Store, private: Path) -> None:
    """The file has the size and time of the private one: anybody who may list the folder of that one knows both."""
    known = private.stat()
    put(folder, "a", "x" * known.st_size)
    os.utime(folder / "a", ns=(known.st_mtime_ns, known.st_mtime_ns))
    orders = log(folder, store)
    assert names(orders) == ["a"]
    (folder / "a").unlink()
    (folder / "a").symlink_to(private)
    for asked in (orders, log(folder, store)):
        with pytest.raises(LogError) as told:
            asked.paths(0, 1)
        assert told.value.condition == "INPUT_CHANGED"


def test_a_link_that_was_there_while_the_file_was_read_is_found_out(folder: Path, store: Store, private: Path) -> None:
    """A reader checks the file before it reads, and again before it uses the content."""
    put(folder, "a")
    orders = log(folder, store)
    assert names(orders) == ["a"]
    (folder / "a").rename(folder / ".aside")
    (folder / "a").symlink_to(private)  # at this point it is read
    (folder / ".aside").rename(folder / "a")
    with pytest.raises(LogError) as told:
        orders.paths(0, 1)
    assert told.value.condition == "INPUT_CHANGED"
    assert list(orders.paths(0, 1)) == [folder / "a"], "a retry reads it"


def test_a_change_is_found_by_each_reader_whatever_the_others_have_found(
    folder: Path, store: Store, private: Path
) -> None:
    """Two batches read one folder. The retry of one of them must not hide the change from the other."""
    put(folder, "a")
    orders = log(folder, store)
    orders.end()
    for reader in ("one", "other"):
        orders.paths(0, 1, reader=reader)
    (folder / "a").rename(folder / ".aside")
    (folder / "a").symlink_to(private)  # at this point both read it
    (folder / ".aside").rename(folder / "a")
    for reader in ("one", "other"):
        with pytest.raises(LogError) as told:
            orders.paths(0, 1, reader=reader)
        assert told.value.condition == "INPUT_CHANGED"
        assert list(orders.paths(0, 1, reader=reader)) == [folder / "a"], "a retry reads it"


def test_a_file_that_may_not_be_read_is_skipped(folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights are faked, because tests may run as root, who may read everything."""
    put(folder, "a")
    orders = log(folder, store)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "access", lambda path, mode: False)
        assert (orders.end(), orders.skipped) == (0, {"a": "no right to read it"})
    assert names(orders) == ["a"]


def _remove(path: Path) -> None:
    path.unlink()


def _grow(path: Path) -> None:
    path.write_text("{}\n{}")


def _replace_by_the_like(path: Path) -> None:
    path.unlink()
    path.write_text("[]")  # the same length as before


@pytest.mark.parametrize(
    ("change", "condition"),
    [(_remove, "INPUT_EXPIRED"), (_grow, "INPUT_CHANGED"), (_replace_by_the_like, "INPUT_CHANGED")],
)
def test_a_file_that_is_needed_and_no_longer_what_it_was_is_told(
    folder: Path, store: Store, change: Callable[[Path], None], condition: str
) -> None:
    first, second = put(folder, "a"), put(folder, "b")
    orders = log(folder, store)
    assert orders.end() == 2
    before = second.stat()
    change(second)
    with pytest.raises(LogError) as told:
        orders.paths(0, 2)
    assert told.value.condition == condition
    assert told.value.parameters["file"] == "b"
    assert list(orders.paths(0, 1)) == [first], "other files can still be read"
    assert orders.end() == 2, "a name is read once"
    second.write_text("{}")
    os.utime(second, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert names(orders) == ["a", "b"], "once the file is restored, reading resumes"


def test_it_is_known_from_where_a_replay_is_possible(folder: Path, store: Store) -> None:
    paths = [put(folder, f"{i}") for i in range(4)]
    orders = log(folder, store)
    assert (orders.end(), orders.there_from()) == (4, 0)
    paths[1].unlink()
    assert log(folder, store).there_from() == 2
    assert orders.there_from() == 2


def test_a_folder_that_is_away_is_waited_for(folder: Path, store: Store, tmp_path: Path) -> None:
    put(folder, "a")
    orders = log(folder, store)
    assert orders.end() == 1
    folder.rename(tmp_path / "elsewhere")
    assert (orders.end(), orders.there_from()) == (1, 0)
    for ask in (orders.require, lambda: orders.paths(0, 1)):
        with pytest.raises(FalkirkError) as told:
            ask()
        assert told.value.condition == "FOLDER_MISSING"
    put(tmp_path / "elsewhere", "b")
    (tmp_path / "elsewhere").rename(folder)
    assert names(orders) == ["a", "b"]


def test_listing_seldom_misses_nothing(folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = log(folder, store)
    orders.end()
    put(folder, "a")
    orders.there_from()  # lists
    orders.poll_s = 1_000.0
    assert orders.end() == 1, "a file that another query listed has a number"


class _Kept:
    """A store that keeps only decisions about files."""

    def __init__(self) -> None:
        self.content: list[Any] = []

    def decisions(self, kind: str, name: str) -> list[Any]:
        return []

    def record_decision(self, kind: str, name: str, number: int, content: Any) -> None:
        self.content += content


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=12), max_size=5, unique=True))
def test_whatever_a_file_is_called_it_is_numbered_skipped_or_left_alone(drawn: list[str]) -> None:
    kept = _Kept()
    with tempfile.TemporaryDirectory() as place:
        written = {n for n in drawn if n not in (".", "..") and n.encode("utf-8", "ignore").decode() == n}
        for name in written:
            (Path(place) / name).write_text("{}")
        orders = FileLog("orders", fk.Files(place, "json", schema="n INT"), kept, poll_s=0.0)  # type: ignore[arg-type]
        assert orders.end() == len(kept.content)
        numbered = {name for name, _, _ in kept.content}
        assert numbered | set(orders.skipped) == {n for n in written if not n.startswith(("_", "."))}
        assert not numbered & set(orders.skipped)
        assert orders.report().isascii()
        assert {p.name for p in orders.paths(0, orders.end())} == numbered
