"""Declarations of event time: `withWatermark`, and `dropDuplicates` after it."""

from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.nodes import Step


def test_event_time_is_declared_before_the_step_that_needs_it() -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP, n INT", key="id"))
    timed = events.withWatermark("at", "10 seconds", ahead="1 hour").where("n > 1")
    for step in (timed.dropDuplicates(["id"]), timed.dropDuplicatesWithinWatermark(["id"])):
        assert isinstance(step.node, Step)
        assert step.node.operation == "dropDuplicates"
        assert str(step.node.arguments[1]) == "at, 10 s, 3600 s ahead"
    for without in (
        lambda: events.dropDuplicates(["id"]),
        lambda: timed.groupBy("id").count().dropDuplicates(["id"]),
        lambda: timed.map_rows(dict, returns="id STRING").dropDuplicates(["id"]),
        lambda: timed.dropDuplicates(["id"]).dropDuplicates(["n"]),
        lambda: events.stateful(print, key="id", state="n INT", returns="n INT", expires="1 hour"),
        lambda: events.stateful(print, key="id", state="n INT", returns="n INT", on_timer=print),
    ):
        with pytest.raises(fk.DefinitionError) as caught:
            without()
        assert caught.value.condition == "WATERMARK_MISSING"
    for key in ("id", [], [1], ()):
        with pytest.raises(fk.DefinitionError) as caught:
            timed.dropDuplicates(key)  # type: ignore[arg-type]
        assert caught.value.condition == "KEY_MISSING"


@pytest.mark.parametrize(("column", "delay"), [("", "1 day"), (None, "1 day"), ("at", "200000 days")])
def test_event_time_needs_a_column_and_a_possible_delay(column: Any, delay: Any) -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP"))
    with pytest.raises(fk.DefinitionError) as caught:
        events.withWatermark(column, delay)
    assert caught.value.condition == "WATERMARK_INVALID"
    assert caught.value.parameters["column"] == column
