"""Connected live regions whose coordinator is interrupted during its work: a release, a recovery, a collection.

An interrupted action is finished or started again. Input that a replay needs still exists, and no result is lost,
repeated or contradicted. `chaos/test_coordinator.py` kills the process at the same places, in the soak.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.errors import InternalError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.application import logs
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.chaos.apps.dying import PLACES, RECORDS_AT_ONCE
from tests.chaos.harness import Load
from tests.integration.live import Wire, await_one
from tests.integration.tentative import Hop, application, expected, released
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cut_off(place: str, patch: pytest.MonkeyPatch) -> None:
    """Make the last certain pass of a place the last thing that the coordinator does."""
    owner, name, behind, left = PLACES[place]
    real: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        result = None if left <= 0 and not behind else real(*arguments, **options)
        if left <= 0:
            raise InternalError("CUT_OFF", place)
        return result

    patch.setattr(owner, name, call)


def test_cut_off_in_the_middle_of_everything(
    broker: Broker, spark: "SparkSession", home: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    events, counts = wire.topic("events"), wire.topic("counts")
    monkeypatch.setattr(logs, "RECORDS_AT_ONCE", RECORDS_AT_ONCE)

    @cache
    def app() -> fk.App:
        # Each place needs several checkpoints, and regions cost as much time while they wait for these.
        return application(events, counts, home, history=0, interval="2 seconds", often="1 second")

    hops, watching = list[Hop](), ExitStack()

    def start() -> Query:
        query = run_here(app(), Connection.of(broker.bootstrap))
        if not hops:
            hops.append(watching.enter_context(Hop(broker.bootstrap, query.hops[1]).watched()))
        return query

    def end_at(place: str) -> None:
        """Run the application until it is interrupted, at its start or later."""
        with monkeypatch.context() as patch:
            cut_off(place, patch)
            try:
                query = start()
                wait_until(lambda: not query.isActive, 120, lambda: f"{place}: {query.status}")
                query.stop()
                error = query.exception()
            except InternalError as raised:
                error = raised
        assert isinstance(error, InternalError), error
        assert (error.condition, error.message) == ("CUT_OFF", place)

    with Load(broker.bootstrap, events, rate=25.0) as load:
        with watching:
            for place in PLACES:
                end_at(place)
            query = start()
            try:
                sent = load.sent
                await_one(query, lambda: wire.count(counts) >= sent, f"{sent} results")
                load.__exit__()
                await_one(query, lambda: wire.count(counts) >= load.sent, f"{load.sent} results")
            finally:
                query.stop()
        found = released(broker.bootstrap, counts)
        assert sorted(r["n"] for rows in found.values() for r in rows) == list(range(load.sent))
        with open_home(home, app().name) as opened:
            assert found == expected(hops[0], opened.store)
