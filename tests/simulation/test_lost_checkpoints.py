"""Damaged checkpoints, step by step: refusals, the regions that continue, and the effect of a spare checkpoint."""

import random
from pathlib import Path

import pytest

from falkirk.errors import UnrecoverableError
from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.recovery import RecoveryProtocol
from falkirk.theory.times import TopicPartition
from tests.simulation import oracle
from tests.simulation.bugs import (
    a_newer_checkpoint_counts_as_left,
    marks_are_forgotten,
    voided_beyond_the_checkpoint,
)
from tests.simulation.elements import Element
from tests.simulation.world import World

OUT = TopicPartition(topic="outside", partition=0)


class Bench:
    """in ▶ drawn (not deterministic) ▶ hop ▶ counted (deterministic) ▶ held ▶ outside, one partition each.

    Args: spare: as of the Wheel. behind: another deterministic region is between counted and held. draws: counted does,
        too.
    """

    def __init__(self, folder: Path, *, spare: int = 0, behind: bool = False, draws: bool = False) -> None:
        stages = {
            "drawn": Stage(name="drawn", inputs=("in",), output="hop", deterministic=False),
            "counted": Stage(
                name="counted", inputs=("hop",), output="counts" if behind else "held", deterministic=not draws
            ),
        }
        if behind:
            stages["shown"] = Stage(name="shown", inputs=("counts",), output="held")
        topics = ("in", "hop", "counts", "held", "outside")
        layout = Layout(stages=stages, partitions=dict.fromkeys(topics, 1), held={"held": "outside"})
        self.world = World(layout, random.Random(7), lag=0.0)
        self.world.store = Store(folder / "bench.db")
        self.drawn, self.counted = self.world.regions["drawn"], self.world.regions["counted"]
        self._options = {"spare": spare, "live": tuple(stages)}
        self.recovery = self.coordinator()
        self.recovery.open()
        self._inputs: dict[str, list[Element]] = {"in.k": []}

    def coordinator(self) -> RecoveryProtocol:
        """Return a coordinator that does not manage any region yet."""
        return RecoveryProtocol(
            self.world.layout, self.world.regions, self.world, self.world.store, self.world.clock, **self._options
        )

    def feed(self) -> None:
        """Feed ten more records, and let the regions process them as far as they are sent."""
        mine = self._inputs["in.k"]
        for _ in range(10):
            element = Element(key="in.k", path=f"in.k:{len(mine)}", digest="")
            mine.append(element)
            self.world.logs[TopicPartition(topic="in", partition=0)].elements.append(element)
        for region in self.world.regions.values():
            assert region.running is not None
            while region.step(region.running):
                pass
            region.deliver(region.running, len(region.running.outbox))

    def save(self, *names: str) -> None:
        """Let regions save a checkpoint, and let the coordinator record it."""
        for name in names:
            region = self.world.regions[name]
            assert region.running is not None
            region.checkpoint(region.running)
            self.recovery.turn()

    def round(self) -> None:
        """Feed records, and let both regions save a checkpoint."""
        self.feed()
        self.save(*self.world.regions)

    def kill(self, name: str) -> None:
        """End a region for good, before it can save anything else."""
        self.world.regions[name].die()
        self.world.regions[name].lingering.clear()

    @property
    def released(self) -> int:
        return self.world.logs[OUT].end

    def judge(self) -> None:
        """Check that the published results are possible without failures."""
        oracle.judge(self.world, self._inputs, complete=False)


def newest(region: object) -> int:
    return max(region.saved)  # type: ignore[attr-defined]


@pytest.mark.parametrize("at_sight", [True, False])
def test_a_checkpoint_that_published_results_rest_on_is_lost(tmp_path: Path, at_sight: bool) -> None:
    """Without the refusal, the region goes back one checkpoint, draws again, and releases other results after the first
    ones."""
    bench = Bench(tmp_path)
    bench.round()
    before = bench.released
    bench.round()
    after = bench.released
    assert 0 < before < after
    number = newest(bench.drawn)
    bench.drawn.damage(number, at_sight=at_sight)
    bench.kill("drawn")
    if not at_sight:
        bench.recovery.turn()  # starts the region, and only then the damage shows
    with pytest.raises(UnrecoverableError) as lost:
        bench.recovery.turn()
    assert lost.value.condition == "CHECKPOINT_LOST"
    expected = {"missing": ("drawn",), "goes": {"drawn": number - 1}, "results": {"outside": after - before}}
    assert lost.value.parameters.items() >= expected.items()
    assert bench.released == after
    with pytest.raises(UnrecoverableError):  # a new coordinator does not continue either
        bench.coordinator().open()
    bench.judge()


def test_a_person_may_go_on_knowingly(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.round()
    bench.round()
    out, number = bench.released, newest(bench.drawn)
    bench.drawn.damage(number, at_sight=True)
    bench.kill("drawn")
    with pytest.raises(UnrecoverableError):
        bench.recovery.turn()
    bench.recovery = bench.coordinator()
    assert bench.recovery.open(force=True).goes["drawn"] == number - 1
    bench.round()
    bench.round()
    assert bench.released > out
    with pytest.raises(oracle.Illegal):
        bench.judge()


def test_nothing_is_refused_while_no_published_result_rests_on_it(tmp_path: Path) -> None:
    """The checkpoint is damaged before any result was released because of it."""
    bench = Bench(tmp_path)
    bench.round()
    out = bench.released
    bench.feed()
    assert bench.drawn.running is not None
    bench.drawn.checkpoint(bench.drawn.running)
    bench.drawn.damage(newest(bench.drawn), at_sight=True)
    bench.kill("drawn")
    bench.recovery.turn()
    bench.round()
    assert bench.released > out
    bench.judge()


@pytest.mark.parametrize("at_sight", [True, False])
def test_a_deterministic_region_may_lose_any_checkpoint(tmp_path: Path, at_sight: bool) -> None:
    """Its output of input that still counts is not void, so it is not sent again: nothing has to wait for it."""
    bench = Bench(tmp_path)
    bench.round()
    bench.round()
    out = bench.released
    bench.counted.damage(newest(bench.counted), at_sight=at_sight)
    bench.recovery = bench.coordinator()
    for name in ("drawn", "counted"):
        bench.kill(name)
    bench.recovery.open()
    bench.recovery.turn()
    bench.round()
    assert bench.released > out
    bench.judge()


def test_results_that_are_sent_again_alike_must_not_be_voided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without the mechanism: published results would be published again, so the coordinator refuses."""
    voided_beyond_the_checkpoint(monkeypatch)
    with pytest.raises(UnrecoverableError) as refused:
        test_a_deterministic_region_may_lose_any_checkpoint(tmp_path, at_sight=True)
    assert refused.value.condition == "CHECKPOINT_LOST"


def lose_what_was_sent(bench: Bench, at_sight: bool) -> None:
    """Twice, let all fail, and let counted lose the only checkpoint that covers all published results."""
    bench.round()
    bench.counted.damage(newest(bench.counted), at_sight=at_sight)
    for _ in range(2):  # the second time before it has made another one
        bench.recovery = bench.coordinator()
        for name in bench.world.regions:
            bench.kill(name)
        bench.recovery.open()
        bench.recovery.turn()


@pytest.mark.parametrize("at_sight", [True, False])
def test_what_a_deterministic_region_had_sent_stays_fixed(tmp_path: Path, at_sight: bool) -> None:
    """Before, the mark was lost with the checkpoint: the reader went back to the beginning, and Falkirk refused this.

    Published results would have become invalid, though a replay gives the same.
    """
    bench = Bench(tmp_path, behind=True)
    lose_what_was_sent(bench, at_sight)
    out, shown = bench.released, bench.world.regions["shown"]
    assert out > 0
    assert bench.counted.went_back_to < shown.went_back_to == newest(shown)
    bench.round()
    assert bench.released > out
    bench.judge()


def test_without_marks_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the mechanism off."""
    marks_are_forgotten(monkeypatch)
    with pytest.raises(UnrecoverableError) as refused:
        lose_what_was_sent(Bench(tmp_path, behind=True), at_sight=True)
    assert refused.value.condition == "CHECKPOINT_LOST"


def test_marks_below_what_is_kept_become_one(tmp_path: Path) -> None:
    """However long it runs, there are no more of them than checkpoints."""
    bench = Bench(tmp_path, behind=True)
    for _ in range(5):
        bench.round()
    assert len(bench.world.store.marks("counted")) <= len(bench.counted.saved) + 1
    assert bench.world.store.marks("drawn") == ()


def test_a_command_that_only_looks_records_no_marks(tmp_path: Path) -> None:
    """A command that asks for the data that could be collected, while the application runs."""
    bench = Bench(tmp_path)
    bench.feed()
    for region in (bench.drawn, bench.counted):
        assert region.running is not None
        region.checkpoint(region.running)
    bench.coordinator().begin_again()
    assert bench.world.store.marks("counted") == ()
    bench.recovery.turn()
    assert bench.world.store.marks("counted") != ()


@pytest.mark.parametrize("at_sight", [True, False])
@pytest.mark.parametrize("name", ["drawn", "counted"])
def test_with_a_spare_checkpoint_one_may_be_lost(tmp_path: Path, name: str, at_sight: bool) -> None:
    """Results wait for one more checkpoint. Then they depend on one that certainly exists."""
    bench = Bench(tmp_path, spare=1)
    bench.round()
    assert bench.released == 0
    for _ in range(3):
        bench.round()
        out, region = bench.released, bench.world.regions[name]
        assert out > 0
        region.damage(newest(region), at_sight=at_sight)
        bench.kill(name)
        bench.recovery.turn()
        bench.recovery.turn()
        bench.round()
        bench.round()
        assert bench.released > out
    bench.judge()


def lose_the_consistent_one(bench: Bench) -> None:
    """Let counted lose its newest checkpoint that is consistent with drawn's. A newer one has read records that drawn
    has sent since its own checkpoint."""
    for _ in range(3):
        bench.round()
    bench.save("drawn")
    number = newest(bench.counted)
    bench.feed()
    bench.save("counted")
    bench.counted.damage(number, at_sight=False)
    bench.kill("drawn")
    bench.recovery.turn()
    assert bench.counted.went_back_to == number
    bench.recovery.turn()
    assert bench.counted.went_back_to < number


@pytest.mark.parametrize("draws", [True, False])
def test_the_checkpoint_that_is_lost_is_the_newest_consistent_one(tmp_path: Path, draws: bool) -> None:
    """Nothing was left to go back to, not even with a spare one."""
    bench = Bench(tmp_path, spare=int(draws), draws=draws)
    lose_the_consistent_one(bench)
    out = bench.released
    for _ in range(3):
        bench.round()
    assert bench.released > out > 0
    bench.judge()


@pytest.mark.parametrize("draws", [True, False])
def test_a_newer_checkpoint_is_nothing_to_go_back_to(
    tmp_path: Path, draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the mechanism off."""
    a_newer_checkpoint_counts_as_left(monkeypatch)
    with pytest.raises(UnrecoverableError) as refused:
        lose_the_consistent_one(Bench(tmp_path, spare=int(draws), draws=draws))
    assert refused.value.condition == "NO_CHECKPOINT_LEFT"


def test_two_checkpoints_are_kept_and_no_more(tmp_path: Path) -> None:
    """The reader's checkpoints that belong to each of the two are kept too, however often it saves."""
    bench = Bench(tmp_path)
    for _ in range(4):
        bench.round()
        for _ in range(5):
            bench.feed()
            bench.save("counted")
    bench.save("drawn")
    assert len(bench.drawn.saved) == 2
    older = bench.drawn.saved[newest(bench.drawn) - 1]
    hop = TopicPartition(topic="hop", partition=0)
    assert any(s.read[hop] <= older.sent[hop] for s in bench.counted.saved.values())
