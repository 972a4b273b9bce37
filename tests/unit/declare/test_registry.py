"""Topics with a schema registry, as users declare them, and what a start completes."""

import json
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.registry import Registered
from falkirk.errors import DefinitionError, HomeError, LogError
from falkirk.plan.schemas import SCHEMAS_FILE, Use, with_schemas, without_registries
from tests.registries import FakeRegistry

SCHEMA = json.dumps({"type": "record", "name": "order", "fields": [{"name": "id", "type": "string"}]})
NEWER = SCHEMA.replace("order", "order2")


def test_a_url_is_a_registry() -> None:
    topic = fk.Kafka("orders", format="avro", registry="http://registry:8081/")
    assert topic.schemas == fk.Registry("http://registry:8081")
    assert topic.schemas.subject_of("orders") == "orders-value"
    assert fk.Registry("https://r", subject="x").subject_of("orders") == "x"
    assert fk.Kafka("orders", format="avro", schema=SCHEMA, registry="http://r").written_as.startswith(
        "avro with schema"
    )


def test_the_password_comes_from_the_environment_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hidden")
    for password in ("hidden", "env:REGISTRY_PASSWORD"):
        registry = fk.Registry("https://r", user="ann", password=password)
        assert registry.authorization == "Basic YW5uOmhpZGRlbg=="
        assert "hidden" not in repr(fk.Kafka("orders", schema="a INT", registry=registry))
        assert "hidden" not in repr(registry.with_id(7))
    monkeypatch.delenv("REGISTRY_PASSWORD")
    with pytest.raises(DefinitionError, match="REGISTRY_PASSWORD"):
        assert registry.authorization


@pytest.mark.parametrize(
    "make",
    [
        lambda: fk.Registry("registry:8081"),
        lambda: fk.Registry("ftp://registry"),
        lambda: fk.Registry("http://"),
        lambda: fk.Registry("http://r:port"),
        lambda: fk.Registry("http://r?a=b"),
        lambda: fk.Registry("http://ann:hidden@registry"),
        lambda: fk.Registry("http://registry", user="ann"),
        lambda: fk.Registry("http://registry", password="hidden"),
        lambda: fk.Registry(None),  # type: ignore[arg-type]
        lambda: fk.Kafka("orders", format="avro", registry=7),  # type: ignore[arg-type]
    ],
)
def test_a_registry_that_can_not_be_used_is_refused(make: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        make()
    assert refused.value.condition == "REGISTRY_INVALID"
    assert "hidden" not in str(refused.value)


def test_formats_without_schemas_have_no_registry() -> None:
    with pytest.raises(DefinitionError) as refused:
        fk.Kafka("orders", format="text", registry="http://r")
    assert refused.value.condition == "REGISTRY_MISPLACED"
    with pytest.raises(DefinitionError) as refused:
        fk.Kafka("orders", format="avro")
    assert refused.value.condition == "SCHEMA_MISSING"


JSON = json.dumps({"type": "object", "properties": {"id": {"type": "string"}}})


def json_shop(at: str, writes: str | None) -> fk.App:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema="id STRING", registry=at))

    @app.stream()
    def same(orders: fk.Stream) -> fk.Stream:
        return orders

    app.sink("out", same, fk.Kafka("out", schema=writes, registry=at))
    return app


def test_a_json_sink_registers_its_json_schema(tmp_path: Path) -> None:
    file = tmp_path / "out.schema.json"
    file.write_text(JSON)
    with FakeRegistry() as registry:
        registry.add("something", SCHEMA)
        app = json_shop(registry.url, str(file))
        assert app.sinks["out"].topic.schema == JSON
        assert app.sinks["out"].topic.written_as != json_shop(registry.url, "{}").sinks["out"].topic.written_as
        found = with_schemas(app, tmp_path, Use.START).sinks["out"].topic
        assert (found.schema, found.schemas) == (JSON, Registered(registry.url, number=2))
        assert registry.add("out-value", JSON, schemaType="JSON") == 2, "it is registered as one of JSON"
        assert with_schemas(app, tmp_path).sources["orders"].topic.schema == "id STRING"
    assert with_schemas(app, tmp_path, Use.START).sinks["out"].topic == found, "recorded: the registry is down"


def test_a_json_sink_without_a_schema_writes_the_newest_one(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        number = registry.add("out-value", JSON, schemaType="JSON")
        found = with_schemas(json_shop(registry.url, None), tmp_path, Use.START).sinks["out"].topic
        assert (found.schema, found.schemas) == (JSON, Registered(registry.url, number=number))
        registry.add("out-value", SCHEMA)
        with pytest.raises(LogError, match="has no JSON schema") as refused:
            with_schemas(json_shop(registry.url, None), tmp_path / "other", Use.START)
        assert refused.value.condition == "SCHEMA_UNREGISTERED"
        registry.add("out-value", '{"type": 7}', schemaType="JSON")
        with pytest.raises(DefinitionError) as invalid:
            with_schemas(json_shop(registry.url, None), tmp_path / "other", Use.START)
        assert invalid.value.condition == "SCHEMA_INVALID"


@pytest.mark.parametrize(
    "given",
    [
        "id STRING",
        "none.json",
        "{",
        '{"type": 7}',
        '{"required": "id"}',
        '{"properties": []}',
        '{"properties": {"id": "string"}}',
        '{"properties": {"id": {"anyOf": 1}}}',
        '{"items": {"oneOf": [{"type": [1]}]}}',
        '{"items": ' * 2_000 + "{}" + "}" * 2_000,
    ],
)
def test_a_schema_that_is_no_json_schema_is_refused(given: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        json_shop("http://r", given)
    assert refused.value.condition == "SCHEMA_INVALID"


def shop(registry: FakeRegistry, *, reads: str | None = None, writes: str | None = SCHEMA) -> fk.App:
    app = fk.App("shop")
    orders = app.source("orders", fk.Kafka("orders", format="avro", schema=reads, registry=registry.url))

    @app.stream()
    def same(orders: fk.Stream) -> fk.Stream:
        return orders

    app.sink("out", same, fk.Kafka("out", format="avro", schema=writes, registry=registry.url))
    assert orders is not None
    return app


def test_a_start_records_what_each_later_start_uses(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        registry.add("orders-value", SCHEMA)
        app = shop(registry)
        assert with_schemas(app, tmp_path).sources["orders"].topic.schema == SCHEMA
        assert not (tmp_path / SCHEMAS_FILE).exists(), "a plan records nothing"
        found = with_schemas(app, tmp_path, Use.START)
        registry.add("orders-value", NEWER)
    again = with_schemas(app, tmp_path, Use.START)  # the registry is down
    standby = with_schemas(app, tmp_path, Use.STANDBY)
    for each in (found, again, standby):
        assert each.sources["orders"].topic.schema == SCHEMA
        assert each.sources["orders"].topic.where == app.sources["orders"].topic.where
        assert each.sinks["out"].topic.schemas == Registered(registry.url, number=1)
    assert app.sources["orders"].topic.schema is None, "the declaration stays as it is"


def test_a_plan_needs_no_registry_if_the_schemas_are_given(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        app = shop(registry, reads=SCHEMA)
        found = with_schemas(app, tmp_path / "missing")
        assert found.sources["orders"].topic.schema == SCHEMA
        assert not registry.asked
        with pytest.raises(HomeError) as refused:
            with_schemas(app, tmp_path, Use.STANDBY)
        assert refused.value.condition == "SCHEMAS_UNRECORDED"
        assert not registry.asked


def test_a_sink_without_a_schema_writes_the_newest_one(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        registry.add("out-value", SCHEMA)
        number = registry.add("out-value", NEWER)
        app = shop(registry, reads=SCHEMA, writes=None)
        for use in (Use.PLAN, Use.START):
            topic = with_schemas(app, tmp_path, use).sinks["out"].topic
            assert (topic.schema, topic.schemas) == (NEWER, Registered(registry.url, number=number))
        assert registry.count("POST") == 0


def test_a_changed_schema_or_registry_is_registered(tmp_path: Path) -> None:
    with FakeRegistry() as registry, FakeRegistry() as other:
        other.add("something", '{"type": "int"}')
        assert with_schemas(shop(registry, reads=SCHEMA), tmp_path, Use.START).sinks["out"].topic.schemas == Registered(
            registry.url, number=1
        )
        for at, schema, number in ((registry, NEWER, 2), (other, NEWER, 2), (other, None, 2)):
            topic = with_schemas(shop(at, reads=SCHEMA, writes=schema), tmp_path, Use.START).sinks["out"].topic
            assert (topic.schema, topic.schemas) == (NEWER, Registered(at.url, number=number))


def test_a_damaged_record_and_a_registry_without_the_subject_are_told(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        with pytest.raises(LogError) as unknown:
            with_schemas(shop(registry), tmp_path, Use.START)
        assert unknown.value.condition == "SCHEMA_UNREGISTERED"
        (tmp_path / SCHEMAS_FILE).write_text('{"read": {"orders-value": {}}}')
        with pytest.raises(HomeError) as damaged:
            with_schemas(shop(registry), tmp_path, Use.START)
        assert damaged.value.condition == "HOME_DAMAGED"


def test_the_test_kit_gives_values_without_a_prefix() -> None:
    with FakeRegistry() as registry:
        assert without_registries(shop(registry, reads=SCHEMA)).sources["orders"].topic.registry is None
