"""Declaring batches: the condition and the line of each refusal, and the facts about an accepted batch."""

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.cut import ByClock, ByRows, OnArrival
from falkirk.errors import DefinitionError


def app() -> fk.App:
    declared = fk.App("shop")
    declared.source("events", fk.Kafka("events", schema="word STRING"))
    return declared


def counts(events: Any) -> Any:
    return events


def stateful(events: Any, stateful: Any) -> Any:
    return events


def viewing(weights: fk.View) -> Any:
    return weights


@pytest.mark.parametrize(
    ("declare", "condition"),
    [
        (lambda a: a.batch()(counts), "CUT_INVALID"),
        (lambda a: a.batch(every="1 s", rows=3)(counts), "CUT_INVALID"),
        (lambda a: a.batch(rows=0)(counts), "CUT_INVALID"),
        (lambda a: a.batch(every="soon")(counts), "DURATION_MALFORMED"),
        (lambda a: a.batch(rows=3, policy=fk.Ephemeral())(counts), "POLICY_MISPLACED"),
        (lambda a: a.stream(fk.FullHistory())(counts), "POLICY_MISPLACED"),
        (lambda a: a.stream(fk.Eager(), engine="live")(counts), "POLICY_MISPLACED"),
        (lambda a: a.iterate(rows=3, until="1")(counts), "ITERATION_INVALID"),
        (lambda a: a.iterate(rows=3, rounds=True)(counts), "ITERATION_INVALID"),
        (lambda a: a.batch(rows=3, state="n LONG")(counts), "STATE_UNDECLARED"),
        (lambda a: a.batch(rows=3)(stateful), "STATE_UNDECLARED"),
        (lambda a: a.batch(rows=3)(viewing), "UPSTREAM_MISSING"),
        (lambda a: a.stream(fk.Eager())(viewing), "UPSTREAM_MISSING"),
        (lambda a: a.sink("out", counts, "out"), "NOT_AN_ENDPOINT"),
        (lambda a: fk.Sql("postgresql://h/d", "drop table"), "TABLE_NAME_INVALID"),
        (lambda a: fk.Sql("mysql://h/d", "t"), "DATABASE_UNKNOWN"),
        (lambda a: fk.Files("out", "avro"), "OPTION_UNKNOWN"),  # type: ignore[arg-type]
        (lambda a: a.source("in", fk.Files("in")), "SCHEMA_MISSING"),
        (lambda a: a.source("in", fk.Sql("sqlite:///x", "t")), "NOT_A_TOPIC"),
        (lambda a: fk.Console(rows=0), "OPTION_UNKNOWN"),
        (lambda a: fk.Kafka("in", format="avro"), "SCHEMA_MISSING"),
        (lambda a: fk.Kafka("in", format="avro", schema="no/such.avsc"), "SCHEMA_INVALID"),
        (lambda a: fk.Kafka("in", format="avro", schema="{no json"), "SCHEMA_INVALID"),
        (lambda a: fk.Kafka("in", format="avro", schema='{"type": "record", "fields": []}'), "SCHEMA_INVALID"),
    ],
)
def test_a_mistake_is_refused_with_its_line(declare: Callable[[fk.App], Any], condition: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        declare(app())
    assert refused.value.condition == condition
    assert __file__.endswith(str(refused.value.where).split(":")[0])


def test_what_is_declared_is_known() -> None:
    declared = app()
    declared.batch(every="2 minutes")(counts)
    declared.batch(rows=7, state="n LONG", policy=fk.Lazy(when=lambda epoch: epoch % 2 == 0))(stateful)

    @declared.stream(fk.Eager())
    def answers(events: Any, counts: fk.View, stateful: "fk.View") -> Any:
        return events

    known = declared.processors
    assert known["counts"].cut == ByClock(every_s=120.0)
    assert known["stateful"].cut == ByRows(rows=7)
    assert (known["answers"].cut, known["answers"].views) == (OnArrival(), {"counts", "stateful"})
    assert [known[n].policy for n in ("counts", "answers")] == [fk.LogSends(), fk.Eager()]


def test_a_policy_decides_when_to_save() -> None:
    third = fk.Lazy(when=lambda epoch: epoch % 3 == 0)
    assert [third.saves(epoch, 0.0) for epoch in range(4)] == [True, False, False, True]
    assert [fk.Lazy("5 seconds").saves(1, since_s) for since_s in (4.9, 5.0)] == [False, True]


def test_a_password_is_not_shown() -> None:
    declared = fk.Sql("postgresql://u:secret@h/d", "t")
    assert "secret" not in repr(declared)
    assert str(declared.where).endswith(': declared = fk.Sql("…", "…")')


def test_files_can_be_read_and_are_no_topic() -> None:
    declared = app()
    source = declared.source("orders", fk.Files("in", "csv", schema="id LONG"))
    assert declared.folders["orders"].format == "csv"
    assert "orders" not in declared.sources
    with pytest.raises(DefinitionError) as taken:
        declared.source("orders", fk.Kafka("orders", schema="id LONG"))
    assert taken.value.condition == "NAME_TAKEN"
    declared.sink("out", source, fk.Kafka("out"))  # the planner refuses live readers later
    assert declared.sinks["out"].reads == "orders"
