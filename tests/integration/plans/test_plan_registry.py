"""Plans of topics with a schema registry: those of plain Avro. They ask the registry only for a missing schema."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import falkirk as fk
from falkirk.declare.application import Application
from falkirk.declare.policy import Delivery
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import Use, with_schemas
from falkirk.reading import application_of
from tests.registries import FakeRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = json.dumps({"type": "record", "name": "order", "fields": [{"name": "id", "type": "string"}]})


def counts(orders: fk.Kafka) -> Application:
    stream = fk.read(orders).groupBy("id").count()
    return application_of(stream, fk.Kafka("out", key="id"), delivery=Delivery.EXACTLY_ONCE, interval="1 second")


def planned(app: Application, spark: "SparkSession", home: Path, use: Use = Use.PLAN) -> Plan:
    return plan_application(with_schemas(app, home, use), spark, "deadbeef")


def test_a_source_with_a_registry_is_planned_as_one_with_plain_avro(spark: "SparkSession", tmp_path: Path) -> None:
    plain = planned(counts(fk.Kafka("orders", format="avro", schema=SCHEMA)), spark, tmp_path)
    wanted = [region.fingerprint for region in plain.regions]
    with FakeRegistry() as registry:
        given = planned(
            counts(fk.Kafka("orders", format="avro", schema=SCHEMA, registry=registry.url)), spark, tmp_path
        )
        assert [region.fingerprint for region in given.regions] == wanted
        assert not registry.asked
        registry.add("orders-value", SCHEMA)
        newest = counts(fk.Kafka("orders", format="avro", registry=registry.url))
        found = planned(newest, spark, tmp_path, Use.START)
        assert [region.fingerprint for region in found.regions] == wanted
    assert planned(newest, spark, tmp_path) == found, "the registry is down, and the home has recorded the schema"
