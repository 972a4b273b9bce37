"""Contract of the ports, for simulated and real regions and logs, so that the simulation can't drift."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.times import TopicPartition
from tests.contract.rigs import Place, Rig, SimulatedRig, live_rig


@pytest.fixture(params=["simulated", "real"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, home: Path, tag: str) -> Iterator[Rig]:
    if request.param == "simulated":
        yield SimulatedRig(tmp_path)
        return
    broker, spark = request.getfixturevalue("broker"), request.getfixturevalue("spark")
    with live_rig(spark, broker, home, tag) as real:
        yield real


def begin(rig: Rig) -> None:
    rig.region.fence()
    rig.region.start(rig.region.checkpoints()[-1].number)


def checkpoint(rig: Rig, number: int) -> Checkpoint:
    return next(p for p in rig.region.checkpoints() if p.number == number)


def upto(topic: str, positions: dict[int, int]) -> OffsetFrontier:
    return OffsetFrontier.of({TopicPartition(topic=topic, partition=p): o for p, o in positions.items()})


def covers(at: Checkpoint, topic: str, place: Place) -> bool:
    return place[1] < at.read.length(TopicPartition(topic=topic, partition=place[0]))


def before(at: Checkpoint, topic: str, place: Place) -> bool:
    return place[1] < at.sent.length(TopicPartition(topic=topic, partition=place[0]))


def places(ranges: tuple[tuple[str, int, int, int], ...], topic: str) -> set[Place]:
    return {(p, o) for t, p, first, last in ranges for o in range(first, last) if t == topic}


def test_a_region_from_its_first_start_to_a_replay(rig: Rig) -> None:
    assert not rig.region.health().runs
    assert [p.number for p in rig.region.checkpoints()] == [-1]
    begin(rig)
    assert rig.region.health().runs
    rig.feed(6)
    older = rig.save()
    rig.feed(6)
    newer = rig.save()
    rig.feed(6)

    # Checkpoints: their numbers and frontiers grow, and φ lies before each result of input that they don't cover.
    checkpoints = rig.region.checkpoints()
    numbers = [p.number for p in checkpoints]
    assert numbers == sorted(set(numbers))
    assert {-1, older, newer} <= set(numbers)
    assert all(a.read <= b.read and a.sent <= b.sent for a, b in itertools.pairwise(checkpoints))
    sent = rig.causes(rig.output)
    assert len(sent) == 18
    for at in checkpoints:
        assert all(covers(at, rig.source, sent[p]) for p in sent if before(at, rig.output, p))

    # The fence: the region stops, nothing more arrives, and a second call changes nothing.
    rig.region.fence()
    rig.region.fence()
    assert not rig.region.health().runs
    rig.feed(2)
    assert rig.causes(rig.output) == sent

    # `beyond` returns exactly the results of input that the checkpoint does not cover.
    for number in (-1, older, newer):
        at = checkpoint(rig, number)
        beyond = places(rig.region.beyond(number, at.read), rig.output)
        assert beyond == {p for p in sent if not covers(at, rig.source, sent[p])}
    # The region may have to go back further than `upto`. Results of input within `upto` are still not included.
    at = checkpoint(rig, newer)
    beyond = places(rig.region.beyond(older, at.read), rig.output)
    assert beyond == {p for p in sent if not covers(at, rig.source, sent[p])}

    # Rewind: the checkpoint becomes the newest; a replay sends no result again that is already there.
    rig.region.rewind(older)
    rig.region.rewind(older)
    assert rig.region.checkpoints()[-1].number == older
    rig.region.start(older)
    rig.feed(3)
    rig.save()
    assert sorted(rig.causes(rig.output).values()) == sorted(
        (p, o) for p in (0, 1) for o in range(23) if o < _fed(rig, p)
    )


def _fed(rig: Rig, partition: int) -> int:
    return int(rig.logs.ends(rig.source).length(TopicPartition(topic=rig.source, partition=partition)))


def test_what_was_voided_is_sent_again_and_readers_skip_it(rig: Rig) -> None:
    begin(rig)
    rig.feed(4)
    number = rig.save()
    rig.feed(4)
    rig.region.fence()
    read = checkpoint(rig, number).read
    voids = rig.region.beyond(number, read)
    assert len(places(voids, rig.output)) == 4
    recovery = rig.store.open_recovery("test", {}, voids=voids)
    rig.store.advance_recovery(recovery, "restored")
    rig.store.advance_recovery(recovery, "done")
    assert rig.region.beyond(number, read) == (), "void records are not voided again"
    rig.region.rewind(number)
    rig.region.start(number)
    rig.save()
    assert len(rig.causes(rig.output)) == 12
    counting = [c for p, c in rig.causes(rig.output).items() if p not in places(voids, rig.output)]
    assert sorted(counting) == sorted(set(counting))
    assert len(counting) == 8

    # The copy omits void records. A caller that does not know of the copy repeats it, and it copies nothing again.
    ends = rig.logs.ends(rig.output)
    nothing = OffsetFrontier.of({})
    assert rig.logs.copied(rig.output, rig.sink) == nothing
    half = upto(rig.output, {p: int(n) // 2 for p, n in ((e.partition, n) for e, n in ends.prefixes)})
    rig.logs.copy(rig.output, rig.sink, nothing, half)
    rig.logs.copy(rig.output, rig.sink, nothing, ends)
    rig.logs.copy(rig.output, rig.sink, nothing, ends)
    assert rig.logs.copied(rig.output, rig.sink) <= ends
    assert rig.logs.remains(rig.output, rig.sink, half) == half, "the sink has lost nothing"
    copied = sorted(rig.causes(rig.sink).values())
    assert copied == sorted(set(rig.causes(rig.output)) - places(voids, rig.output))


def test_old_checkpoints_and_records_go_for_good(rig: Rig) -> None:
    begin(rig)
    numbers = []
    for _ in range(3):
        rig.feed(2)
        numbers.append(rig.save())
    for _ in range(2):
        rig.region.keep_only([-1, numbers[1]])
        assert [p.number for p in rig.region.checkpoints()][:2] == [-1, numbers[1]], "what lies between is deleted"
    rig.region.keep_only(numbers[1:2])
    rig.region.keep_only(numbers[1:2])
    kept = [p.number for p in rig.region.checkpoints()]
    assert kept[0] == numbers[1]
    rig.region.fence()
    assert [p.number for p in rig.region.checkpoints()] == kept
    below = checkpoint(rig, numbers[1]).sent
    rig.logs.delete_below(rig.output, below)
    rig.logs.delete_below(rig.output, below)
    assert all(not before(checkpoint(rig, numbers[1]), rig.output, p) for p in rig.causes(rig.output))
    rig.logs.acknowledge(rig.source, checkpoint(rig, numbers[1]).read)
    rig.region.rewind(numbers[1])
    rig.region.start(numbers[1])
    rig.feed(2)
    newest = rig.save()
    assert newest > numbers[1]
    sent = rig.causes(rig.output)
    assert len(sent.values()) == len(set(sent.values()))
