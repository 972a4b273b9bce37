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


def counted(events: fk.Stream, orders: fk.Stream) -> fk.Stream:
    return pairs(events, orders).groupBy("n").count()


def summed(events: fk.Stream) -> fk.Stream:
    return events.stateful(fk.deterministic(lambda row, state: (row, state)), key="n", state="s INT", returns="n INT")


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
        in_engines(shop(pairs, engine="live"))
    assert caught.value.condition == "ENGINE_UNSUITABLE"
    assert caught.value.parameters["processor"] == "pairs"
    with pytest.raises(DefinitionError) as caught:
        shop(plain, engine="fast")
    assert caught.value.condition == "OPTION_UNKNOWN"


def test_what_only_live_regions_do_is_refused_in_micro_batches() -> None:
    with pytest.raises(DefinitionError) as caught:
        in_engines(shop(counted))
    assert caught.value.condition == "ENGINE_UNSUITABLE"
    assert "groupBy" in str(caught.value.where)


def _of_python(body: Any, **options: Any) -> str:
    """Return why a processor that calls Python does not run live; "" if it does."""
    app = shop(body, **options)
    return str(in_engines(app).processors[body.__name__].engine_reason)


def test_a_declared_function_runs_live() -> None:
    def declared(events: fk.Stream) -> fk.Stream:
        return events.map_rows(fk.deterministic(lambda row: {"n": row.n}), returns="n INT")

    @fk.deterministic
    def covered(events: fk.Stream) -> fk.Stream:
        return doubled(events)

    def grouped(events: fk.Stream) -> fk.Stream:
        return doubled(events).groupBy("n").count()

    def joined(events: fk.Stream, orders: fk.Stream) -> fk.Stream:
        left, right = (each.withWatermark("at", "1 s") for each in (events, orders))
        return left.join(right, "n", within="1 s").map_rows(fk.deterministic(lambda row: row), returns="n INT")

    assert _of_python(declared) == ""
    assert _of_python(summed) == ""
    assert _of_python(covered) == "", "the declaration of the processor covers its functions"
    reason = _of_python(doubled)
    assert "double() is not declared" in reason
    assert "test_engines.py" in reason, "it names the line"
    assert _of_python(doubled, engine="live") == "", "the user accepts that results wait"
    assert _of_python(grouped) == "", "micro-batches have no groupBy()"
    assert "with a join()" in _of_python(joined)
    assert 'engine="micro-batch"' in _of_python(declared, engine="micro-batch")


def first(events: fk.Stream) -> fk.Stream:
    return events.withWatermark("at", "10 seconds").dropDuplicates(["id"])


def _of_first(body: Any, *, key: str | None = "id", **options: Any) -> str:
    """Return why a processor of clicks does not run live; "" if it does."""
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="id STRING, at TIMESTAMP, n INT", key=key))
    app.add_processor("first", body, reads=("clicks",), **{"policy": fk.Lazy(), **options})
    return str(in_engines(app).processors["first"].engine_reason)


@pytest.mark.parametrize(
    "body",
    [
        first,
        lambda s: first(s.select("*", "n").where("n > 1")),
        lambda s: first(s.selectExpr("id", "at", "n + 1 AS n")),
        lambda s: s.withWatermark("at", "1 day").explode("n", "m").drop("n").dropDuplicates(["m", "id"]),
        lambda s: s.withWatermark("at", "1 day").dropDuplicates(["n", "id"]).where("n > 1").dropDuplicates(["id"]),
        lambda s: first(s).groupBy("n").count(),
    ],
)
def test_duplicates_are_dropped_live_where_a_partition_has_all_records_of_a_key(body: Any) -> None:
    assert _of_first(body) == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda s: first(s.withColumns({"ID": "upper(id)"})), "partitioned by id"),
        (lambda s: first(s.selectExpr("upper(id) AS id", "at")), "partitioned by id"),
        (lambda s: first(s.map_rows(fk.deterministic(double), returns="id STRING, at TIMESTAMP")), "partitioned by id"),
        (lambda s: first(s.withColumnRenamed("n", "Id")), "partitioned by id"),
        (lambda s: s.withWatermark("at", "1 day").dropDuplicates(["n"]), "partitioned by id"),
        (lambda s: first(s.withWatermark("at", "1 day").dropDuplicates(["id", "n"])), "another step with state"),
        (lambda s: s.withWatermark("at", "1 day").dropDuplicates(["id", "n"]).dropDuplicates(["n"]), "partitioned by"),
    ],
)
def test_duplicates_are_dropped_in_micro_batches_if_a_key_may_come_from_several_partitions(
    body: Any, reason: str
) -> None:
    assert reason in _of_first(body)


def test_duplicates_need_a_key_of_the_topic_and_its_own_partitions() -> None:
    assert "declared without key=" in _of_first(first, key=None)
    assert "fk.LogSends()" in _of_first(first, policy=fk.LogSends())
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="id STRING, at TIMESTAMP", key="id"))
    app.add_processor("events", lambda clicks: clicks.where("id > 'a'"), reads=("clicks",), policy=fk.Lazy())
    app.add_processor("first", first, reads=("events",), policy=fk.Lazy())
    assert "only on a source" in str(in_engines(app).processors["first"].engine_reason)


def _expiring(events: fk.Stream) -> fk.Stream:
    return _timed_state(events, expires="1 hour")


def _reminding(events: fk.Stream) -> fk.Stream:
    return _timed_state(events, on_timer=fk.deterministic(lambda key, time, state: (key, state)))


def _timed_state(events: fk.Stream, **options: Any) -> fk.Stream:
    timed = events.withWatermark("at", "10 seconds").where("id > 'a'")
    function = fk.deterministic(lambda row, state: (row, state))
    return timed.stateful(function, key="id", state="s INT", returns="id STRING", **options)


def test_the_timers_function_must_be_declared_too() -> None:
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="id STRING, at TIMESTAMP", key="id"))
    app.add_processor("visits", _reminding, reads=("clicks",), policy=fk.Lazy())
    assert in_engines(app).processors["visits"].cut is None, "it runs live"

    def later(key: object, time: object, state: object) -> object:
        return key, state

    def undeclared(clicks: fk.Stream) -> fk.Stream:
        return _timed_state(clicks, on_timer=later)

    app.add_processor("others", undeclared, reads=("clicks",), policy=fk.Lazy())
    assert "later() is not declared" in str(in_engines(app).processors["others"].engine_reason)


@pytest.mark.parametrize(("body", "option"), [(_expiring, "expires"), (_reminding, "on_timer")])
def test_a_state_with_event_time_needs_its_keys_in_one_partition_on_both_engines(body: Any, option: str) -> None:
    app = fk.App("shop")
    app.source("clicks", fk.Kafka("clicks", schema="id STRING, at TIMESTAMP", key="id"))
    app.add_processor("visits", body, reads=("clicks",), policy=fk.Lazy())
    assert in_engines(app).processors["visits"].cut is None, "it runs live"
    for options in ({"key": None}, {"key": "at"}, {"key": None, "engine": "micro-batch"}):
        with pytest.raises(DefinitionError) as caught:
            _of_first(body, **options)
        assert caught.value.condition == "EXPIRY_UNSUITABLE"
        assert caught.value.parameters["option"] == option
    app.add_processor("events", lambda clicks: clicks.where("id > 'a'"), reads=("clicks",), policy=fk.Lazy())
    app.add_processor("later", body, reads=("events",), policy=fk.Lazy())
    with pytest.raises(DefinitionError) as caught:
        in_engines(app)
    assert caught.value.parameters["reason"] == "it reads events"


def test_an_event_time_that_no_step_uses_is_an_error() -> None:
    with pytest.raises(DefinitionError) as caught:
        _of_first(lambda s: s.withWatermark("at", "1 day").where("n > 1"))
    assert caught.value.condition == "WATERMARK_UNUSED"


def test_a_lookup_runs_live_where_tasks_have_the_views() -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema="id STRING, product STRING"))

    @app.batch(every="1 second")
    def prices(orders: Any) -> Any:
        return orders

    @app.stream()
    def priced(orders: fk.Stream, prices: fk.View) -> fk.Stream:
        return orders.lookup(prices, "product", "found")

    assert in_engines(app).processors["priced"].engine_reason == ""
    reason = in_engines(app, holds_views=False).processors["priced"].engine_reason
    assert "spark.plugins=org.falkirk.ClusterPlugin" in reason
