"""The backlog: all input up to given ends is processed, behind hops, held logs, batches and views."""

from falkirk.recovery.protocol.backlog import Backlog, Waits
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.times import TopicPartition


def upto(**lengths: int) -> OffsetFrontier:
    return OffsetFrontier.of({TopicPartition(topic=t, partition=0): n for t, n in lengths.items()})


class World:
    """An application whose logs have one partition each. Args: sources: their ends."""

    def __init__(self, *stages: Stage, held: dict[str, str] | None = None, **sources: int) -> None:
        logs = {t for s in stages for t in (*s.inputs, s.output)} | set((held or {}).values())
        layout = Layout(stages={s.name: s for s in stages}, partitions=dict.fromkeys(logs, 1), held=held or {})
        self.ends: dict[str, int] = dict.fromkeys(logs, 0)
        self.released: dict[str, OffsetFrontier] = dict.fromkeys(held or {}, EMPTY)
        self.covered: dict[str, OffsetFrontier] = {s.name: EMPTY for s in stages}
        self.backlog = Backlog(layout, lambda log: upto(**{log: self.ends[log]}), upto(**sources))

    def saves(self, stage: str, **read: int) -> Waits:
        """Make a checkpoint of a region; return what is missing then."""
        self.covered[stage] = upto(**read)
        return self.waits()

    def waits(self, *down: str) -> Waits:
        self.backlog.take_in(self.covered)
        return self.backlog.waits(self.released, down)


def stage(name: str, reads: str, writes: str, **views: str) -> Stage:
    return Stage(name=name, inputs=(*reads.split(), *views.values()), output=writes, views=tuple(views.values()))


def test_a_region_has_to_pass_the_end_and_may_pass_it_by_far() -> None:
    world = World(stage("a", "source", "sink"), source=5)
    assert world.waits() == Waits(unfinished=("a",), stuck={}, left=5)
    assert world.saves("a", source=4) == Waits(unfinished=("a",), stuck={}, left=1)
    assert world.saves("a", source=5) == Waits(unfinished=(), stuck={}, left=0)
    assert world.saves("a", source=50).unfinished == ()


def test_nothing_to_do_is_done_at_once() -> None:
    assert World(stage("a", "source", "hop"), stage("b", "hop", "sink"), source=0).waits().unfinished == ()


def test_a_hop_ends_where_it_ended_when_its_writer_was_done() -> None:
    world = World(stage("a", "source", "hop"), stage("b", "hop", "sink"), source=5)
    world.ends["hop"] = 3
    assert world.saves("b", hop=3).unfinished == ("a", "b"), "its writer may write more"
    assert not world.backlog.is_final("b")
    world.ends["hop"] = 7
    assert world.saves("a", source=6).unfinished == ("b",)
    assert world.backlog.is_final("b")
    assert world.backlog.ends("b") == {"hop": upto(hop=7)}
    world.ends["hop"] = 9
    assert world.saves("b", hop=7).unfinished == (), "later results are of later input"


def test_a_rollback_of_the_writer_takes_the_end_back() -> None:
    world = World(stage("a", "source", "hop"), stage("b", "hop", "sink"), source=5)
    world.ends["hop"] = 3
    world.saves("a", source=5)
    assert world.saves("b", hop=3).unfinished == ()
    assert world.saves("a", source=2).unfinished == ("a", "b")
    world.ends["hop"] = 8
    assert world.saves("a", source=5).unfinished == ("b",)


def test_results_that_are_held_have_to_be_published() -> None:
    world = World(stage("a", "source", "held"), held={"held": "sink"}, source=5)
    world.ends["held"] = 4
    assert world.saves("a", source=5).unfinished == ("a",)
    world.released["held"] = upto(held=3)
    assert world.waits().unfinished == ("a",)
    world.released["held"] = upto(held=4)
    assert world.waits().unfinished == ()


def test_all_readers_and_both_inputs_count() -> None:
    world = World(stage("a", "source", "one"), stage("b", "source other", "two"), source=5, other=2)
    world.saves("a", source=5)
    assert world.saves("b", source=5, other=1) == Waits(unfinished=("b",), stuck={}, left=1)
    assert world.saves("b", source=4, other=2) == Waits(unfinished=("b",), stuck={}, left=1)
    assert world.saves("b", source=5, other=2).unfinished == ()


def test_a_reader_of_a_view_waits_for_the_rest_of_its_input_only() -> None:
    world = World(stage("v", "facts", "log"), stage("r", "queries", "sink", view="log"), facts=5, queries=2)
    world.ends["log"] = 1
    assert world.saves("r", queries=2).unfinished == ("v",)
    assert world.backlog.is_final("r")


def test_nobody_waits_for_the_first_epoch_of_a_view_without_input() -> None:
    """The epoch can't come, and the readers of its results can't progress either."""
    world = World(
        stage("v", "facts", "log"), stage("r", "queries", "hop", view="log"), stage("b", "hop", "sink"),
        facts=0, queries=2,
    )  # fmt: skip
    assert world.waits() == Waits(unfinished=(), stuck={"r": "log"}, left=2)
    world.ends["log"] = 1  # an epoch of later input
    assert world.saves("r", queries=2).stuck == {}


def test_nobody_waits_for_what_is_down_nor_for_what_reads_it() -> None:
    world = World(
        stage("a", "source", "hop"), stage("b", "hop", "hop2"), stage("c", "hop2", "sink"), stage("d", "source", "out"),
        source=5,
    )  # fmt: skip
    assert world.waits("a").unfinished == ("d",)
    world.covered["d"] = upto(source=5)
    assert world.waits("a").unfinished == ()
    assert world.waits().unfinished == ("a", "b", "c")
