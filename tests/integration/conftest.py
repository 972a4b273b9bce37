"""Fixtures of the tests with Spark."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.declare.nodes import SourceNode
from falkirk.kafka_client.connection import Connection
from falkirk.plan import planner
from falkirk.plan.draft import Draft
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs import run
from falkirk.runtime.supervision import start
from falkirk.spark_setup.broker import Broker
from falkirk.steps.live.stamped import Frame
from tests.integration.functions import SCHEMA
from tests.integration.live import Wire
from tests.integration.targets import Place, place
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def wire(broker: Broker, tag: str) -> Wire:
    """Topics of the test's own."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


@pytest.fixture(scope="session")
def begun() -> dict[str, Frame]:
    """The frames of the source of `plan`, by its schema."""
    return {}


@pytest.fixture
def plan(spark: "SparkSession", begun: dict[str, Frame], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Plan one processor between a source and a sink. The source is planned once, which takes a third of a plan."""
    begin = planner._Planner._begin

    def planned(
        body: Callable[[fk.Stream], Any], *, key: Any = None, sink_key: Any = None, schema: str = SCHEMA,
        engine: Any = None, **sink: Any,
    ) -> Plan:  # fmt: skip
        def begin_once(made: planner._Planner, source: SourceNode) -> Draft:
            if source.is_hop:
                return begin(made, source)
            if schema in begun:
                made.begun["events", "events"] = begun[schema]
            draft = begin(made, source)
            begun[schema] = made.begun["events", "events"]
            return draft

        monkeypatch.setattr(planner._Planner, "_begin", begin_once)
        app = fk.App("planned")
        app.source("events", fk.Kafka("events", schema=schema, key=key))
        app.add_processor("counts", body, reads=("events",), policy=fk.Lazy("5 seconds"), engine=engine)
        app.sink("out", "counts", fk.Kafka("out", key=sink_key), **sink)
        return plan_application(app, spark, "deadbeef")

    return planned


@pytest.fixture(autouse=True)
def seldom_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches look for input four times a second, not ten times. Four that wait took 7 % of a core for that."""
    monkeypatch.setattr(run, "_POLL_S", 0.25)


@pytest.fixture(autouse=True)
def planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan an application once that a test starts again unchanged. Planning takes a third of a short run's time."""
    plans = dict[Any, tuple[Any, Plan]]()

    def planned(app: fk.App, session: "SparkSession", identity: str) -> Plan:
        settings = {name: value for name, value in vars(app).items() if not isinstance(value, dict)}
        parts = {
            name: {k: id(v) for k, v in value.items()} for name, value in vars(app).items() if name not in settings
        }
        key = (id(app), id(session), identity, repr(settings), repr(parts))
        if key not in plans:
            plans[key] = app, plan_application(app, session, identity)  # the application too: its id is not used again
        return plans[key][1]

    monkeypatch.setattr(start, "plan_application", planned)


@pytest.fixture(scope="module")
def session(spark: "SparkSession") -> "SparkSession":
    """A session in which collections that change are worked off."""
    made = spark.newSession()
    made.conf.set("spark.sql.adaptive.enabled", "false")
    made.conf.set("spark.sql.shuffle.partitions", "2")
    return made


@pytest.fixture
def place_of(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, postgres: Postgres
) -> Iterator[Callable[[str], Place]]:
    """Make a place of a kind, to which epochs can be released."""
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    with open_home(home, "targets") as opened:
        context = Context(session=spark, connection=connection, home=opened, state_partitions=2)
        yield partial(place, context=context, wire=wire, url=postgres.patient_url())
