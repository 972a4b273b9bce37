"""Engines: which processors run live and which in micro-batches, and why."""

from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.cut import OnArrival
from falkirk.errors import DefinitionError
from falkirk.plan.engines import in_engines


def double(row: Any) -> Any:
    return {"n": 2 * row.n}


def doubled(events: fk.Stream) -> fk.Stream:
    return events.where("n > 0").map_rows(double, returns="n INT")


def plain(events: fk.Stream) -> fk.Stream:
    return events.where("n > 0")


def after(doubled: fk.Stream) -> fk.Stream:
    return doubled.select("n")


def pairs(events: fk.Stream, orders: fk.Stream) -> fk.Stream:
    return events.join(orders.where("n > 1"), "n")


def counted(events: fk.Stream) -> fk.Stream:
    return events.map_rows(double, returns="n INT").groupBy("n").count()


def shop(*bodies: Any, **options: Any) -> fk.App:
    app = fk.App("shop")
    for name in ("events", "orders"):
        app.source(name, fk.Kafka(name, schema="n INT"))
    for body in bodies:
        app.stream(**options)(body)
    return app


def test_live_where_it_can_be_else_in_micro_batches_with_the_reason() -> None:
    app = in_engines(shop(plain, doubled, after, pairs))
    assert {n: p.cut for n, p in app.processors.items()} == {
        "plain": None, "doubled": OnArrival(), "after": OnArrival(), "pairs": OnArrival(),
    }  # fmt: skip
    reasons = {n: p.engine_reason for n, p in app.processors.items()}
    assert reasons["plain"] == ""
    assert "map_rows()" in reasons["doubled"]
    assert "test_engines.py" in reasons["doubled"], "the reason names the line"
    assert "'doubled'" in reasons["after"]
    assert "join()" in reasons["pairs"]


def test_results_leave_at_once_unless_a_user_saves_more_rarely() -> None:
    def chained(events: fk.Stream) -> fk.Stream:
        return events.stateful(lambda row, state: (None, None), key="n", state="x INT", returns="n INT")

    def policy(*bodies: Any, given: fk.Lazy | None = None) -> Any:
        app = fk.App("shop")
        app.source("events", fk.Kafka("events", schema="n INT"))
        for body in bodies:
            app.stream(given)(body)
        return in_engines(app).processors[bodies[-1].__name__].policy

    assert policy(chained) == fk.Eager()
    assert policy(chained, given=fk.Lazy("1 minute")) == fk.Lazy("1 minute")
    assert policy(doubled, given=fk.Lazy("1 minute")) == fk.Eager(), "it has no state that could be saved"


def test_the_declaration_stays_as_it_was() -> None:
    app = shop(doubled)
    in_engines(app)
    assert app.processors["doubled"].cut is None


def test_a_user_may_choose() -> None:
    assert in_engines(shop(plain, engine="micro-batch")).processors["plain"].cut == OnArrival()
    with pytest.raises(DefinitionError) as caught:
        in_engines(shop(doubled, engine="live"))
    assert caught.value.condition == "ENGINE_UNSUITABLE"
    assert caught.value.parameters["processor"] == "doubled"
    with pytest.raises(DefinitionError) as caught:
        shop(plain, engine="fast")
    assert caught.value.condition == "OPTION_UNKNOWN"


def test_what_only_live_regions_do_is_refused_in_micro_batches() -> None:
    with pytest.raises(DefinitionError) as caught:
        in_engines(shop(counted))
    assert caught.value.condition == "ENGINE_UNSUITABLE"
    assert "groupBy" in str(caught.value.where)
