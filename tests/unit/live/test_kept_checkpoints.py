"""Checkpoints that are set aside from those that Spark deletes, on files as Spark writes them."""

import random
from pathlib import Path

import pytest

from falkirk.runtime.spark.live import checkpoint, kept
from falkirk.runtime.spark.live.kept import KeptCheckpoints
from tests.unit.live.test_checkpoint_files import write, write_batch

RETAIN = 10


class Spark:
    """Spark's checkpoint of a query, which keeps the last `RETAIN` batches. Each tenth version is a snapshot."""

    def __init__(self, folder: Path) -> None:
        self.folder = write(folder, 0)
        (self.folder / "state/0/0/SSTs").mkdir()
        (self.folder / "state/0/_metadata").mkdir()
        (self.folder / "state/0/_metadata/schema").write_text("schema")

    @property
    def newest(self) -> int:
        return checkpoint.last_committed_batch(self.folder)

    def run(self, batches: int) -> None:
        for n in range(self.newest + 1, self.newest + 1 + batches):
            write_batch(self.folder, n)
            if n % 10 == 9:
                (self.folder / f"state/0/0/{n + 1}_a{n}.zip").write_text("snapshot")
                (self.folder / f"state/0/0/SSTs/{n}.sst").write_text(f"{n}")
        self.purge()

    def purge(self) -> None:
        for path in (*self.folder.glob("commits/[0-9]*"), *self.folder.glob("offsets/[0-9]*")):
            if int(path.name) <= self.newest - RETAIN:
                path.unlink()
        for partition in (0, 1):
            files = {p: int(p.name.split("_")[0]) for p in self.folder.glob(f"state/0/{partition}/*_*")}
            for path, version in files.items():
                if version <= max(files.values()) - RETAIN:
                    path.unlink()
        for path in self.folder.glob("state/0/0/SSTs/*"):
            if int(path.stem) < self.newest - RETAIN:
                path.unlink()

    def whole(self, batch: int) -> bool:
        return checkpoint.damage(self.folder, batch, "pages") is None


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path / "checkpoint")


def test_a_kept_checkpoint_outlives_what_spark_deletes(spark: Spark) -> None:
    spark.run(13)
    aside = KeptCheckpoints(spark.folder, "pages")
    aside.set_aside([-1, 4, 9], newest=spark.newest, retain=RETAIN)
    assert aside.numbers == {4}, "9 is far from being deleted"
    files = {p.name for p in aside.folder(4).rglob("*") if p.is_file()}
    assert files >= {"3", "4", "4_a3.changelog", "5_a4.changelog", "5_b4.changelog", "9.sst", "schema"}
    assert not files & {"5", "6_a5.changelog", "10_a9.zip"}, "no version after the checkpoint"
    spark.run(30)
    assert not spark.whole(4)
    again = KeptCheckpoints(spark.folder, "pages")
    assert again.numbers == {4}
    assert checkpoint.damage(again.folder(4), 4, "pages") is None
    for _ in range(2):
        checkpoint.rewind(spark.folder, 4)
        again.restore(4)
        assert spark.whole(4)
        assert (spark.newest, checkpoint.end_offsets(spark.folder, 4, "pages")) == (4, {0: 40, 1: 4})
    spark.run(3)
    assert spark.whole(4), "Spark counts what it keeps from the newest version, which is of the restored run"
    assert spark.whole(7)


def test_with_later_versions_left_spark_deletes_what_was_restored(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism is off: files of later versions stay."""
    spark.run(13)
    aside = KeptCheckpoints(spark.folder, "pages")
    aside.set_aside([4], newest=spark.newest, retain=RETAIN)
    spark.run(30)
    checkpoint.rewind(spark.folder, 4)
    monkeypatch.setattr(kept, "state_version", lambda path: None)
    aside.restore(4)
    spark.run(3)
    assert not spark.whole(4)


@pytest.mark.parametrize("crash", range(1, 14, 2))
def test_a_crash_in_between_loses_nothing(spark: Spark, crash: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting aside and restoring are each interrupted after some links, and repeated by the next process."""
    left = [crash]
    link = kept._link

    def failing(source: Path, target: Path) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        link(source, target)

    monkeypatch.setattr(kept, "_link", failing)
    spark.run(13)

    def each(what: str) -> None:
        for _ in range(2):
            aside = KeptCheckpoints(spark.folder, "pages")
            try:
                if what == "set aside":
                    aside.set_aside([4], newest=spark.newest, retain=RETAIN)
                else:
                    checkpoint.rewind(spark.folder, 4)
                    aside.restore(4)
            except KeyboardInterrupt:
                left[0] = 10**9
        left[0] = crash

    each("set aside")
    left[0] = 10**9
    spark.run(30)
    left[0] = crash
    each("restore")
    assert spark.whole(4)
    assert spark.newest == 4


def test_what_spark_has_deleted_already_is_not_kept(spark: Spark, caplog: pytest.LogCaptureFixture) -> None:
    spark.run(40)
    aside = KeptCheckpoints(spark.folder, "pages")
    for _ in range(2):
        aside.set_aside([4], newest=spark.newest, retain=RETAIN)
    assert not aside.numbers
    assert caplog.text.count("Spark has deleted checkpoint 4") == 1
    assert not list(spark.folder.glob("kept/*"))


def test_a_start_deletes_what_an_interrupted_deletion_has_left(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hard links would keep the space of states that nobody can return to."""
    spark.run(13)
    aside = KeptCheckpoints(spark.folder, "pages")
    aside.set_aside([4, 5], newest=spark.newest, retain=RETAIN)
    with monkeypatch.context() as killed:
        killed.setattr(kept.shutil, "rmtree", lambda path, **more: None)
        aside.delete({5})
    assert (spark.folder / "kept" / ".5" / "state").is_dir()
    again = KeptCheckpoints(spark.folder, "pages")
    again.restore(spark.newest)
    assert sorted(path.name for path in (spark.folder / "kept").iterdir()) == ["4"]


def test_without_hard_links_files_are_copied(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(kept.os, "link", refuse)
    spark.run(13)
    made_at_s = checkpoint.committed_at_s(spark.folder, 4)
    aside = KeptCheckpoints(spark.folder, "pages")
    aside.set_aside([4], newest=spark.newest, retain=RETAIN)
    assert aside.numbers == {4}
    assert checkpoint.committed_at_s(aside.folder(4), 4) == made_at_s
    assert checkpoint.damage(aside.folder(4), 4, "pages") is None


@pytest.mark.parametrize("seed", range(5))
def test_any_kept_checkpoint_can_be_restored(spark: Spark, seed: int) -> None:
    """Checkpoints are kept and dropped at random while Spark deletes; deletion takes nothing from another one."""
    rng, aside, wanted = random.Random(seed), KeptCheckpoints(spark.folder, "pages"), list[int]()
    for _ in range(20):
        spark.run(rng.randint(1, 3))
        wanted = sorted({*rng.sample(wanted, max(0, len(wanted) - rng.choice([0, 0, 1]))), spark.newest})
        aside.set_aside(wanted, newest=spark.newest, retain=RETAIN)
        checkpoint.keep_only(spark.folder, wanted)
        aside.delete(aside.numbers - set(wanted))
    assert all(checkpoint.damage(aside.folder(n), n, "pages") is None for n in wanted)
    assert wanted[0] < spark.newest - RETAIN, "Spark has deleted some of them"
    goal = rng.choice(wanted)
    checkpoint.rewind(spark.folder, goal)
    aside.restore(goal)
    assert spark.whole(goal)
    assert spark.newest == goal
    assert max(aside.numbers, default=-1) <= goal
