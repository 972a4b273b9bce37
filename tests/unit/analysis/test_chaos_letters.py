"""The judge of the dead letters of random programs accepts right ones, and refuses each kind of wrong ones."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from falkirk.checker import TopicRecord
from falkirk.theory.offsets import PartitionRange
from falkirk.user_tools.commands.invalid_results import ValidRecords
from tests.chaos.programs_judge import faults_of_letters, letters_of

TOPIC, NAMES = "clicks-1.dead-letters", {"clicks-1": "clicks"}
#: An unfit record of a source, and two rows of an internal log on which a function failed.
UNFIT, FIRST, SECOND = ("clicks-1", 0, 7), ("falkirk.random.1.p0-by-id", 0, 3), ("falkirk.random.1.p0-by-id", 1, 3)
EXPECTED = Counter({
    ("p0", ("unfit", ("clicks", 0, 7))): 1,
    ("p0", ("failed", ("clicks", 0, 1))): 1,
    ("p0", ("failed", ("clicks", 1, 2))): 1,
})  # fmt: skip


def letter(place: tuple[str, int, int]) -> dict[str, Any]:
    topic, partition, offset = place
    found = {"region": "p0-sink", "topic": topic, "partition": partition, "offset": offset}
    if place == UNFIT:
        return {**found, "reason": "column id is null"}
    return {**found, "reason": "the function failed: ValueError: no 5", "traceback": "ValueError: no 5"}


def records(places: Iterable[tuple[str, int, int]]) -> list[TopicRecord]:
    return [
        TopicRecord(topic=TOPIC, partition=0, offset=i, timestamp_ms=None, key=None, value=json.dumps(each).encode())
        for i, each in enumerate(map(letter, places))
    ]


@pytest.mark.parametrize(
    ("places", "sign"),
    [
        ([FIRST, UNFIT, SECOND], None),
        ([FIRST, UNFIT, SECOND, UNFIT], "with a place in a source that are too many: 1"),
        ([FIRST, UNFIT], "{('p0', 'failed'): 1} instead of {('p0', 'failed'): 2}"),
        ([FIRST, UNFIT, SECOND, SECOND], "{('p0', 'failed'): 3} instead of {('p0', 'failed'): 2}"),
        ([FIRST, SECOND], "{('p0', 'failed'): 2} instead of {('p0', 'unfit'): 1, ('p0', 'failed'): 2}"),
    ],
)
def test_each_letter_is_there_once(places: list[tuple[str, int, int]], sign: str | None) -> None:
    faults = faults_of_letters(EXPECTED, letters_of(records(places), NAMES))
    assert ([] if sign is None else [True]) == [sign is not None and sign in fault for fault in faults], faults


def test_letters_that_a_recovery_has_cancelled_do_not_count() -> None:
    """A region of `fk.Snapshots` publishes them again after a kill. The cancelled ones stay in their topic."""
    sent = records([FIRST, UNFIT, SECOND, UNFIT])
    assert faults_of_letters(EXPECTED, letters_of(sent, NAMES))
    valid = ValidRecords((PartitionRange(0, sent[1].offset, sent[1].offset + 1),))
    assert not faults_of_letters(EXPECTED, letters_of(valid.of(sent), NAMES))
    assert valid.found is not None
    assert valid.found.count == 1
