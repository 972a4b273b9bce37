"""Declarations of event time: `withWatermark`, and `dropDuplicates` after it."""

from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.nodes import Step


def test_event_time_is_declared_before_the_step_that_needs_it() -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP, n INT", key="id"))
    timed = events.withWatermark("at", "10 seconds", ahead="1 hour").where("n > 1")
    first = timed.dropDuplicates(["id"])
    for step in (first, timed.dropDuplicatesWithinWatermark(["id"]), first.dropDuplicates(["n"])):
        assert isinstance(step.node, Step)
        assert step.node.operation == "dropDuplicates"
        assert str(step.node.arguments[1]) == "at, 10 s, 3600 s ahead"
    for without in (
        lambda: events.dropDuplicates(["id"]),
        lambda: timed.groupBy("id").count().dropDuplicates(["id"]),
        lambda: timed.map_rows(dict, returns="id STRING").dropDuplicates(["id"]),
        lambda: events.stateful(print, key="id", state="n INT", returns="n INT", expires="1 hour"),
        lambda: events.stateful(print, key="id", state="n INT", returns="n INT", on_timer=print),
        lambda: events.stateful(print, key="id", state="n INT", returns="n INT", order="at"),
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


def test_a_partition_is_idle_after_a_duration() -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP"))
    timed, plain = events.withWatermark("at", "10 seconds", idle="1 minute"), events.withWatermark("at", "10 seconds")
    assert isinstance(timed.node, Step)
    assert str(timed.node.arguments[0]) == "at, 10 s, 60 s ahead, idle after 60 s"
    assert isinstance(plain.node, Step)
    assert str(plain.node.arguments[0]) == "at, 10 s, 60 s ahead"
    with pytest.raises(fk.DefinitionError) as caught:
        events.withWatermark("at", "10 seconds", idle="200000 days")
    assert caught.value.condition == "WATERMARK_INVALID"
    with pytest.raises(fk.DefinitionError) as malformed:
        events.withWatermark("at", "10 seconds", idle="soon")
    assert malformed.value.condition == "DURATION_MALFORMED"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"order": "n"}, "withWatermark() is of 'at'"),
        ({"order": "at", "expires": "1 hour"}, "expires= needs all records of a key in one partition"),
        ({"order": "at", "on_timer": print}, "on_timer= needs all records of a key in one partition"),
    ],
)
def test_an_order_is_that_of_the_event_time(options: dict[str, Any], reason: str) -> None:
    timed = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP, n INT")).withWatermark("at", "10 seconds")
    step = timed.stateful(print, key="id", state="n INT", returns="n INT", order="at").node
    assert isinstance(step, Step)
    assert str(step.arguments[1]["order"]) == "by at, 10 s, 60 s ahead"
    with pytest.raises(fk.DefinitionError) as caught:
        timed.stateful(print, key="id", state="n INT", returns="n INT", **options)
    assert caught.value.condition == "ORDER_UNSUITABLE"
    assert reason in str(caught.value)


def test_an_order_is_of_the_time_that_moves_the_watermark() -> None:
    timed = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP, n INT")).withWatermark("at", "10 seconds")
    with pytest.raises(fk.DefinitionError) as caught:
        timed.drop("at").stateful(print, key="id", state="n INT", returns="n INT", order="at")
    assert "a step after withWatermark() may change column 'at'" in str(caught.value)
