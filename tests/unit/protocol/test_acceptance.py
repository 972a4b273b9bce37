"""Acceptance: the position of a source up to which all results are published, with hops, held logs, batches, views."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.recovery.protocol.acceptance import Acceptance
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.times import TopicPartition


def upto(**lengths: int) -> OffsetFrontier:
    return OffsetFrontier.of({TopicPartition(topic=t, partition=0): n for t, n in lengths.items()})


class World:
    """An application whose logs have one partition each."""

    def __init__(self, *stages: Stage, held: dict[str, str] | None = None) -> None:
        logs = {t for s in stages for t in (*s.inputs, s.output)} | set((held or {}).values())
        layout = Layout(stages={s.name: s for s in stages}, partitions=dict.fromkeys(logs, 1), held=held or {})
        self.ends: dict[str, int] = dict.fromkeys(logs, 0)
        self.released: dict[str, OffsetFrontier] = dict.fromkeys(held or {}, EMPTY)
        self.checkpoints: dict[str, tuple[Checkpoint, ...]] = {s.name: () for s in stages}
        self.asked: set[str] = set()
        self.acceptance = Acceptance(layout, self.end, ["source", "other"])

    def end(self, log: str) -> OffsetFrontier:
        self.asked.add(log)
        return upto(**{log: self.ends[log]})

    def saves(self, stage: str, number: int, **read: int) -> None:
        """Make a checkpoint of a region, with the present end of its output."""
        self.checkpoints[stage] += (Checkpoint(number=number, read=upto(**read), sent=EMPTY),)
        self.acceptance.take_in(self.checkpoints)

    def accepted(self, log: str = "source") -> int:
        return int(self.acceptance.accepted(log, self.released).length(TopicPartition(topic=log, partition=0)))


def stage(name: str, reads: str, writes: str, **views: str) -> Stage:
    return Stage(name=name, inputs=(reads, *views.values()), output=writes, views=tuple(views.values()))


def test_what_a_checkpoint_has_read_is_out_when_a_region_writes_a_sink() -> None:
    world = World(stage("a", "source", "sink"))
    assert world.accepted() == 0
    world.saves("a", 0, source=5)
    assert world.accepted() == 5


def test_behind_a_hop_the_results_must_have_been_read_and_saved_too() -> None:
    world = World(stage("a", "source", "hop"), stage("b", "hop", "sink"))
    world.ends["hop"] = 3
    world.saves("a", 0, source=5)
    world.ends["hop"] = 9
    world.saves("b", 0, hop=2)
    assert world.accepted() == 0
    world.saves("a", 1, source=12)
    world.saves("b", 1, hop=3)
    assert world.accepted() == 5
    world.saves("b", 2, hop=8)
    assert world.accepted() == 5, "of the second checkpoint's results some are not read"
    world.saves("b", 3, hop=9)
    assert world.accepted() == 12


def test_all_readers_of_a_source_have_to_be_through() -> None:
    world = World(stage("a", "source", "one"), stage("b", "source", "two"))
    world.saves("a", 0, source=5)
    assert world.accepted() == 0
    world.saves("b", 0, source=3)
    assert world.accepted() == 3


def test_what_is_held_back_is_outside_when_it_is_released() -> None:
    world = World(stage("a", "source", "held"), held={"held": "sink"})
    world.ends["held"] = 4
    world.saves("a", 0, source=5)
    world.released["held"] = upto(held=3)
    assert world.accepted() == 0
    world.released["held"] = upto(held=4)
    assert world.accepted() == 5


def test_an_epoch_that_others_read_and_sinks_get_has_to_reach_both() -> None:
    world = World(stage("a", "source", "epochs"), stage("b", "epochs", "more"), held={"epochs": "x", "more": "y"})
    world.ends["epochs"] = 1
    world.saves("a", 0, source=5)
    world.released["epochs"] = upto(epochs=1)
    assert world.accepted() == 0
    world.ends["more"] = 1
    world.saves("b", 0, epochs=1)
    assert world.accepted() == 0
    world.released["more"] = upto(more=1)
    assert world.accepted() == 5


def test_who_reads_the_newest_epoch_answers_somebody_else() -> None:
    world = World(stage("a", "source", "view"), stage("b", "other", "sink", v="view"))
    world.ends["view"] = 1
    world.saves("a", 0, source=5)
    assert world.accepted() == 5
    assert world.accepted("other") == 0


def test_who_has_nothing_of_a_request_is_not_followed() -> None:
    """Checkpoints of other stages would only accumulate."""
    world = World(stage("a", "source", "hop"), stage("b", "hop", "end"), stage("c", "third", "fourth", v="hop"))
    for number in range(3):
        for name, read in (("a", "source"), ("b", "hop"), ("c", "third")):
            world.saves(name, number, **{read: number + 1})
    assert world.asked == {"hop"}, "what c writes was noted"
    assert world.accepted() == 3


def test_what_is_taken_back_was_never_read() -> None:
    world = World(stage("a", "source", "held"), held={"held": "sink"})
    for number, end in ((0, 2), (1, 4), (2, 6)):
        world.ends["held"] = end
        world.saves("a", number, source=end)
    world.checkpoints["a"] = world.checkpoints["a"][:1]  # back to checkpoint 0: the records 2 to 5 are void
    world.ends["held"] = 9
    world.saves("a", 3, source=3)
    world.released["held"] = upto(held=6)
    assert world.accepted() == 2, "the void records of checkpoint 2 must not count for its input"
    world.released["held"] = upto(held=9)
    assert world.accepted() == 3


def test_what_was_collected_counts_on() -> None:
    world = World(stage("a", "source", "held"), held={"held": "sink"})
    world.ends["held"] = 2
    world.saves("a", 0, source=2)
    world.ends["held"] = 4
    world.saves("a", 1, source=4)
    world.checkpoints["a"] = world.checkpoints["a"][1:]
    world.saves("a", 2, source=4)
    world.released["held"] = upto(held=2)
    assert world.accepted() == 2


def test_an_idle_region_needs_no_more_than_it_did() -> None:
    world = World(stage("a", "source", "hop"), stage("b", "hop", "sink"))
    world.ends["hop"] = 3
    world.saves("a", 0, source=5)
    world.ends["hop"] = 7  # results of another writer, after ours
    world.saves("a", 1, source=5)
    world.saves("b", 0, hop=3)
    assert world.accepted() == 5


class Chain:
    """A chain of regions. Each log is a list of the offsets, in the source, that its records come from."""

    def __init__(self, regions: int, *, held: bool) -> None:
        self.logs: list[list[int]] = [[] for _ in range(regions + 1)]
        self.read, self.saved = [0] * regions, [0] * regions
        names = ["source", *(f"hop{i}" for i in range(1, regions)), "held" if held else "sink"]
        stages = [stage(f"r{i}", names[i], names[i + 1]) for i in range(regions)]
        self.world, self.names = World(*stages, held={"held": "sink"} if held else None), names
        self.outside = 0

    def step(self, what: str, region: int) -> None:
        region %= len(self.read)
        log, output = self.logs[region], self.logs[region + 1]
        if what == "come":
            self.logs[0].append(len(self.logs[0]))
        elif what == "work" and self.read[region] < len(log):
            place, self.read[region] = self.read[region], self.read[region] + 1
            output += [log[place]] * ((place * 7 + region) % 3)  # some records give no result
            self.world.ends[self.names[region + 1]] = len(output)
        elif what == "save":
            self.saved[region] += 1
            self.world.saves(f"r{region}", self.saved[region], **{self.names[region]: self.read[region]})
        elif what == "release" and "held" in self.world.released:
            self.outside = len(self.logs[-1])
            self.world.released["held"] = upto(held=self.outside)

    def settled(self) -> int:
        """Return the offset of the source below which no record is still being processed."""
        waits = [offset for i, read in enumerate(self.read) for offset in self.logs[i][read:]]
        if "held" in self.world.released:
            waits += self.logs[-1][self.outside :]
        return min(waits, default=len(self.logs[0]))


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "work", "work", "save", "release"]), st.integers(0, 2)), max_size=60
)


@given(steps=STEPS, regions=st.integers(1, 3), held=st.booleans())
def test_nothing_that_is_accepted_is_on_its_way(steps: list[tuple[str, int]], regions: int, held: bool) -> None:
    chain = Chain(regions, held=held)
    for what, region in steps:
        chain.step(what, region)
        assert chain.world.accepted() <= chain.settled()
    for _ in range(regions):  # and once nothing moves, all is accepted
        for region in range(regions):
            for _ in range(3 * len(chain.logs[region]) + 1):
                chain.step("work", region)
            chain.step("release", region)
            chain.step("save", region)
    assert chain.world.accepted() == len(chain.logs[0])


def test_a_position_before_the_results_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acceptance, "_behind", lambda self, name: EMPTY)
    chain = Chain(2, held=False)
    for what, region in (("come", 0), ("come", 0), ("work", 0), ("work", 0), ("save", 0), ("save", 1)):
        chain.step(what, region)
    assert chain.world.accepted() > chain.settled(), "the property above finds the fault"
