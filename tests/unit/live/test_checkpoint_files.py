"""Spark's checkpoint files: undamaged ones, damaged ones, and rewinding."""

import json
from pathlib import Path

import pytest

from falkirk.errors import SparkError
from falkirk.runtime.spark.live.checkpoint import committed_batches, damage, end_offsets, last_committed_batch, rewind
from falkirk.theory.ids import BatchId

CRASH_POINTS = range(8)


def write(folder: Path, batches: int) -> Path:
    """Write a checkpoint in Spark's format, with one stateful operator of two partitions."""
    for name in ("commits", "offsets", "state/0/0", "state/0/1"):
        (folder / name).mkdir(parents=True)
    for n in range(batches):
        write_batch(folder, n)
    return folder


def write_batch(folder: Path, n: int) -> None:
    ids = [[f"a{n}"], [f"b{n}"]]
    commit = json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": ids}})
    (folder / "commits" / str(n)).write_text(f"v2\n{commit}")
    (folder / "commits" / f".{n}.crc").write_text("crc")
    (folder / "offsets" / str(n)).write_text(f'v1\n{{}}\n{{"pages":{{"0":{10 * n},"1":{n}}}}}')
    for partition in (0, 1):
        (folder / f"state/0/{partition}/{n + 1}_{ids[partition][0]}.changelog").write_text("state")


def test_whole_batches(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    assert committed_batches(folder) == (0, 1, 2)
    assert end_offsets(folder, 2, "pages") == {0: 20, 1: 2}
    assert [damage(folder, n, "pages") for n in range(3)] == [None] * 3


def test_a_query_of_two_sources_has_a_line_for_each(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    file = folder / "offsets/2"
    file.write_text(file.read_text() + '\n{"clicks":{"0":7}}')
    assert end_offsets(folder, 2, "pages") == {0: 20, 1: 2}
    assert end_offsets(folder, 2, "clicks") == {0: 7}
    assert damage(folder, 2, "pages", "clicks") is None
    assert damage(folder, 1, "pages", "clicks") == "offsets/1 can't be read"


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "v1\n{}\n", "v1\n{}\n[]", 'v1\n{}\n{"other":{}}', "\0\0\0"])
def test_torn_offsets(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path, 3)
    (folder / "offsets/2").write_text(text)
    assert damage(folder, 2, "pages") is not None
    with pytest.raises(SparkError) as caught:
        end_offsets(folder, 2, "pages")
    assert caught.value.condition == "CHECKPOINT_DAMAGED"


@pytest.mark.parametrize("text", ["", "v2", "v2\n", 'v2\n{"nextBatch', "\0\0", "v2\n[]", "{}\n{}"])
def test_torn_commits(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path, 3)
    (folder / "commits/2").write_text(text)
    assert damage(folder, 2, "pages") is not None
    assert damage(folder, 1, "pages") is None


def test_missing_and_empty_state(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    (folder / "state/0/1/3_b2.changelog").write_text("")
    (folder / "state/0/0/2_a1.changelog").unlink()
    assert [damage(folder, n, "pages") is None for n in range(3)] == [True, False, False]


def test_a_batch_without_the_offsets_of_the_batch_before_is_damaged(tmp_path: Path) -> None:
    """Spark deletes both logs up to the same batch, and can't resume from the oldest one that is left."""
    folder = write(tmp_path, 3)
    (folder / "offsets/0").unlink()
    assert [damage(folder, n, "pages") for n in (1, 2)] == ["offsets/0 is missing", None]


def test_a_stateless_commit_names_no_state(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    (folder / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert damage(folder, 0, "pages") is None


@pytest.mark.parametrize("stop_after", CRASH_POINTS)
def test_a_rewind_that_is_cut_off_is_finished_by_the_next(
    tmp_path: Path, stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, unlink, left = write(tmp_path, 5), Path.unlink, [stop_after]

    class Killed(Exception):
        pass

    def dying(path: Path, missing_ok: bool = False) -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", dying)
    with pytest.raises(Killed):
        rewind(folder, 1)
    monkeypatch.setattr(Path, "unlink", unlink)
    assert {int(f.name) for f in (folder / "offsets").iterdir()} >= set(committed_batches(folder)), "lone commit"
    rewind(folder, 1)
    assert last_committed_batch(folder) == 1
    assert sorted(f.name for f in (folder / "offsets").iterdir()) == ["0", "1"]
    assert sorted(f.name for f in (folder / "commits").iterdir()) == [".0.crc", ".1.crc", "0", "1"]
    rewind(folder, -1)
    assert last_committed_batch(folder) == -1


@pytest.mark.parametrize("batch", [-1, 1])
def test_a_write_that_was_cut_off_leaves_nothing_behind(tmp_path: Path, batch: int) -> None:
    """A kill or a full disk cuts it off. Spark begins only with logs that have no files."""
    folder = write(tmp_path, batch + 1)
    before = {name: sorted(f.name for f in (folder / name).iterdir()) for name in ("commits", "offsets")}
    for name in before:
        for cut_off in (f".{batch + 1}.6ba7-11d1.tmp", f"..{batch + 1}.6ba7-11d1.tmp.crc", f".{batch + 1}.crc"):
            (folder / name / cut_off).write_text("")
    rewind(folder, BatchId(batch))
    assert before == {name: sorted(f.name for f in (folder / name).iterdir()) for name in before}
    assert last_committed_batch(folder) == batch


def test_nothing_to_go_back_to(tmp_path: Path) -> None:
    assert committed_batches(tmp_path) == ()
    rewind(tmp_path, -1)
