"""An input topic ends before the position up to which it was read (its broker lost records): a start is refused."""

import pytest

import falkirk as fk
from falkirk.errors import LogError
from falkirk.plan.topics import refuse_shorter
from falkirk.theory.ids import Offset

TOPIC = fk.Kafka("events", schema="n LONG")


def test_a_topic_that_lacks_records_which_were_read_is_refused() -> None:
    with pytest.raises(LogError) as refused:
        refuse_shorter(TOPIC, {0: Offset(5), 1: Offset(9)}, {0: Offset(5), 1: Offset(8)})
    found = refused.value
    assert (found.condition, found.parameters["topic"], found.parameters["partition"]) == (
        "RANGE_NOT_THERE",
        "events",
        1,
    )
    assert (found.parameters["end"], found.parameters["needed"]) == (8, 9)


def test_a_topic_that_reaches_the_position_is_read_and_so_is_a_new_partition() -> None:
    refuse_shorter(TOPIC, {0: Offset(5)}, {0: Offset(5), 1: Offset(0)})
