"""A live region whose batches end before they read a record gets longer ones."""

import itertools
from collections.abc import Iterator

from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.live.starved import _INTERVAL_MAX_S, CHECKPOINTS, Starvation
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber
from falkirk.theory.times import TopicPartition

EVENTS = TopicPartition(topic="events", partition=0)


def checkpoints(read: int, *, every_s: float = 3.2, first: int = 0) -> Iterator[Checkpoint]:
    """Yield checkpoints that all cover `read` records."""
    for number in itertools.count(first):
        frontier = OffsetFrontier.of({EVENTS: read})
        yield Checkpoint(number=CheckpointNumber(number), read=frontier, sent=EMPTY, made_at_s=number * every_s)


def looked(starved: Starvation, made: Iterator[Checkpoint], count: int, *, waits: bool) -> list[float | None]:
    return [starved.update(checkpoint, lambda: waits) for checkpoint in itertools.islice(made, count)]


def test_a_region_that_reads_nothing_of_what_waits_gets_twice_the_time_of_a_checkpoint() -> None:
    starved = Starvation(1.0)
    found = looked(starved, checkpoints(4), 2 * CHECKPOINTS + 1, waits=True)
    assert found == [None] * 2 * CHECKPOINTS + [6.4]


def test_an_idle_region_is_left_alone() -> None:
    assert looked(Starvation(1.0), checkpoints(4), 100, waits=False) == [None] * 100


def test_a_record_that_arrives_for_the_next_batch_is_none_that_waited() -> None:
    """It waits at one look, and the batch after that has read it."""
    starved = Starvation(1.0)
    assert not any(looked(starved, checkpoints(4), CHECKPOINTS + 1, waits=True))
    assert not any(looked(starved, checkpoints(5, first=CHECKPOINTS + 1), CHECKPOINTS + 1, waits=False))


def test_a_look_at_the_same_checkpoint_counts_once() -> None:
    starved, checkpoint = Starvation(1.0), next(checkpoints(4))
    assert not any(starved.update(checkpoint, lambda: True) for _ in range(100))


def test_an_interval_has_a_limit() -> None:
    assert (
        looked(Starvation(1.0), checkpoints(4, every_s=300.0), 2 * CHECKPOINTS + 1, waits=True)[-1] == _INTERVAL_MAX_S
    )
    assert not any(looked(Starvation(_INTERVAL_MAX_S), checkpoints(4, every_s=300.0), 100, waits=True))


def test_a_region_that_is_quicker_than_its_interval_gets_twice_the_interval() -> None:
    """Checkpoints may be a little closer than the interval, by the clock of the files."""
    assert looked(Starvation(1.0), checkpoints(4, every_s=0.9), 2 * CHECKPOINTS + 1, waits=True)[-1] == 2.0
