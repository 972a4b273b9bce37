"""Declarations of clocks: `fk.Clock` and `Stream.withClock`."""

import pytest

import falkirk as fk
from falkirk.declare.nodes import Step, timed_by


def _clock() -> fk.Stream:
    return fk.App("shop").source("clock", fk.Clock("2 seconds"))


def test_timers_take_the_time_that_is_declared_last() -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP", key="id"))
    clock = _clock()
    for timed, by in (
        (events.withClock(clock).where("id > 'a'"), "the clock"),
        (events.withWatermark("at", "10 seconds").withClock(clock), "the clock"),
        (events.withClock(clock).withWatermark("at", "10 seconds"), "at, 10 s, 60 s ahead"),
    ):
        made = timed.stateful(print, key="id", state="n INT", returns="n INT", on_timer=print)
        assert isinstance(made.node, Step)
        assert str(made.node.arguments[1]["timers"]) == by


def test_a_clock_is_no_event_time() -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING, at TIMESTAMP", key="id"))
    clocked = events.withWatermark("at", "10 seconds").withClock(_clock())
    assert timed_by(clocked.node) is None
    for without in (
        lambda: clocked.dropDuplicates(["id"]),
        lambda: clocked.stateful(print, key="id", state="n INT", returns="n INT", expires="1 hour"),
        lambda: clocked.union(events).stateful(print, key="id", state="n INT", returns="n INT", on_timer=print),
    ):
        with pytest.raises(fk.DefinitionError) as caught:
            without()
        assert caught.value.condition == "WATERMARK_MISSING"


def test_mistakes_are_reported_at_once() -> None:
    events = fk.read(fk.Kafka("events", schema="id STRING", key="id"))
    with pytest.raises(fk.DefinitionError) as caught:
        events.withClock("1 second")  # type: ignore[arg-type]
    assert caught.value.condition == "NOT_A_STREAM"
    with pytest.raises(fk.DefinitionError) as caught:
        fk.Clock("often")
    assert caught.value.condition == "DURATION_MALFORMED"
    app = fk.App("shop")
    app.source("clock", fk.Clock())
    with pytest.raises(fk.DefinitionError) as caught:
        app.source("clock", fk.Clock())
    assert caught.value.condition == "NAME_TAKEN"
