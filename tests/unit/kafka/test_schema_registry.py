"""The client that looks up and registers schemas before a start."""

import json
from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import DefinitionError, LogError
from falkirk.errors.location import caller
from falkirk.kafka_client.schema_registry import SchemaRegistry, authorities
from tests.registries import FakeRegistry, Fault

SCHEMA = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "string"}]}


def client(registry: FakeRegistry, authorization: str | None = None) -> SchemaRegistry:
    return SchemaRegistry(registry.url, authorization, None, caller(), wait_s=0.1)


def test_the_newest_schema_of_a_subject_is_found() -> None:
    with FakeRegistry() as registry:
        registry.add("a/b-value", "{}")
        number = registry.add("a/b-value", SCHEMA)
        found = client(registry).latest("a/b-value")
    assert (found.number, json.loads(found.schema)) == (number, SCHEMA)


def test_a_schema_is_registered_once() -> None:
    with FakeRegistry() as registry:
        first = client(registry).register("out-value", json.dumps(SCHEMA))
        assert client(registry).register("out-value", json.dumps(SCHEMA)) == first
        assert client(registry).latest("out-value").number == first.number


def test_a_subject_without_an_avro_schema_is_an_error() -> None:
    with FakeRegistry() as registry:
        registry.add("json-value", "{}", schemaType="JSON")
        for subject in ("none-value", "json-value"):
            with pytest.raises(LogError, match=subject) as refused:
                client(registry).latest(subject)
            assert refused.value.condition == "SCHEMA_UNREGISTERED"


def test_a_schema_that_refers_to_others_is_refused() -> None:
    with FakeRegistry() as registry:
        registry.add("a-value", SCHEMA, references=[{"name": "x", "subject": "x", "version": 1}])
        with pytest.raises(LogError, match="refers to other schemas") as refused:
            client(registry).latest("a-value")
    assert refused.value.condition == "REGISTRY_REFUSED"


@pytest.mark.parametrize("fault", ["error", "proxy", "path", "down"])
def test_a_registry_that_does_not_answer_is_away(fault: Fault | str) -> None:
    with FakeRegistry() as registry:
        registry.add("a-value", SCHEMA)
        if fault == "down":
            registry.stop()
        else:
            registry.fault = fault  # type: ignore[assignment]
        with pytest.raises(LogError) as away:
            client(registry).latest("a-value")
        assert (away.value.condition, away.value.certainty) == ("REGISTRY_AWAY", "maybe")
        assert fault == "down" or registry.count("GET") == 1
        assert fault != "path" or "path of the address" in str(away.value)


def test_a_registry_that_comes_back_is_waited_for() -> None:
    with FakeRegistry() as registry:
        number = registry.add("a-value", SCHEMA)
        registry.fault = "error"
        asked = SchemaRegistry(registry.url, None, None, caller(), wait_s=20)
        answer = asked._answer

        def mended(*request: Any) -> object:
            if registry.count("GET"):
                registry.fault = None
            return answer(*request)

        asked._answer = mended  # type: ignore[method-assign,assignment]
        assert asked.latest("a-value").number == number
        assert registry.count("GET") == 2


def test_a_wrong_password_is_not_taken_for_a_missing_schema() -> None:
    """Before, a JSON sink without a schema was told to register one. A real registry (Apicurio) showed it."""
    with FakeRegistry(login="ann:hidden") as registry:
        for kind in ("AVRO", "JSON"):
            with pytest.raises(LogError) as refused:
                SchemaRegistry(registry.url, None, None, caller()).latest("out-value", kind)  # type: ignore[arg-type]
            assert refused.value.condition == "REGISTRY_REFUSED"


def test_what_the_registry_refuses_is_told_without_the_password() -> None:
    with FakeRegistry(login="ann:hidden") as registry:
        for authorization, schema, said in (
            ("Basic d3Jvbmc=", json.dumps(SCHEMA), "HTTP 401 Unauthorized"),
            ("Basic YW5uOmhpZGRlbg==", "{}", "HTTP 422 Invalid schema"),
        ):
            with pytest.raises(LogError, match=f"refused a request while .*: {said}\\. ") as refused:
                client(registry, authorization).register("out-value", schema)
            assert refused.value.condition == "REGISTRY_REFUSED"
            assert authorization.split()[1] not in str(refused.value)


def test_a_file_of_authorities_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "missing.pem", tmp_path / "ca.pem"):
        with pytest.raises(DefinitionError, match=path.name) as refused:
            SchemaRegistry("https://127.0.0.1:1", None, str(path), caller())
        assert refused.value.condition == "REGISTRY_INVALID"
    assert authorities(None, caller()) is None
