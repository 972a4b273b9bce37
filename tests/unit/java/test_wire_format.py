"""Values in the wire format of a registry, read by the code of a task, from a registry that also fails."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.registries import FakeRegistry, Fault, wire
from tests.unit.java.conftest import Command

READERS = {
    "type": "record", "name": "order",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "n", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}  # fmt: skip
#: `id` "a", `n` 3, `note` null, as the reader has them.
WANTED = "content 02610600"
#: How long a value waits for a registry that answers, and for one that does not.
PATIENT_MS, HASTY_MS = 30_000, 300

Ask = Callable[..., str]


def of(*fields: tuple[str, Any], name: str = "order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields]}


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as found:
        yield found


@pytest.fixture(scope="module")
def ask(java_tests: Command, registry: FakeRegistry) -> Iterator[Ask]:
    """Return a function that reads a value in a JVM."""
    command = java_tests("WireFormatLines", [json.dumps(READERS)])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, answers = process.stdin, process.stdout

        def ask(value: bytes, *, wait_ms: int = PATIENT_MS, url: str = "", login: str = "-", kind: str = "avro") -> str:
            print(url or registry.url, login, wait_ms, kind, f"x{value.hex()}", file=to, flush=True)
            return answers.readline().rstrip("\n")

        yield ask
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("writers", "content"),
    [
        (READERS, "02610600"),
        (of(("id", "string"), ("n", "long")), "026106"),  # a default
        (of(("id", "string"), ("n", "int")), "026106"),  # a promotion
        (of(("n", "int"), ("id", "bytes")), "060261"),  # another order
        (of(("gone", {"type": "array", "items": "int"}), ("id", "string"), ("n", "int")), "04020400026106"),
        (of(("id", ["null", "string"]), ("n", "int")), "02026106"),  # a union that has the reader's type
        (of(("id", "string"), ("n", "int"), name="other.order"), "026106"),
    ],
    ids=["same", "default", "promotion", "order", "removed", "union", "namespace"],
)
def test_a_value_of_any_writer_is_read_as_the_reader_has_it(
    writers: dict[str, Any], content: str, ask: Ask, registry: FakeRegistry
) -> None:
    number = registry.add("orders-value", writers)
    assert ask(wire(number, bytes.fromhex(content))) == WANTED
    assert ask(wire(number, bytes.fromhex(content))) == WANTED
    assert ask(wire(number, bytes.fromhex(content)), wait_ms=PATIENT_MS + 1) == WANTED, "another task"
    assert registry.asked[f"GET /schemas/ids/{number}"] == 1


def test_a_schema_refers_to_others(ask: Ask, registry: FakeRegistry) -> None:
    registry.add("texts", {"type": "fixed", "name": "letter", "size": 1})
    registry.add("lists", of(("letters", "letter"), name="holder"))
    reference = {"name": "letter", "subject": "texts", "version": 1}
    registry.add("lists2", of(("letters", "letter"), name="holder2"), references=[reference])
    both = [{"name": "holder2", "subject": "lists2", "version": 1}, reference]
    number = registry.add("orders-value", of(("more", "holder2"), ("id", "string"), ("n", "int")), references=both)
    assert ask(wire(number, b"x" + bytes.fromhex("026106"))) == WANTED
    lost = registry.add("orders-value", of(("id", "lost")), references=[reference | {"subject": "lost"}])
    assert ask(wire(lost, b"\x00")) == f"reason schema {lost} refers to a schema that is unknown"


def test_values_that_are_no_records_have_a_reason(ask: Ask, registry: FakeRegistry) -> None:
    known = registry.add("orders-value", of(("id", "string"), ("n", "int")))
    unlike = registry.add("orders-value", of(("id", "string"), ("n", "string")))
    kind = registry.add("orders-value", "{}", schemaType="JSON")
    broken = registry.add("orders-value", '{"type": "record"}')
    deep = registry.add("orders-value", of(("id", "string"), ("n", "int"), ("next", ["null", "order"])))
    prefix = "reason is not in the wire format of a schema registry (byte 0, then a schema id of four bytes)"
    unfit = "reason does not fit the schema: it was written with schema"
    for value, said in (
        (b"", prefix),
        (b"\x00\x00\x00\x00", prefix),
        (b"\x01\x00\x00\x00\x01\x02a\x06", prefix),
        (b'{"id": "a"}', prefix),
        (wire(999, b"\x02a\x06"), "reason schema 999 is unknown to the registry"),
        (b"\x00\xff\xff\xff\xff", "reason schema -1 is unknown to the registry"),
        (wire(known, b"\x02"), f"{unfit} {known}"),
        (wire(known, b""), f"{unfit} {known}"),
        (wire(unlike, b"\x02a\x02b"), f"{unfit} {unlike}"),
        (wire(kind, b"{}"), f"reason schema {kind} is JSON, not AVRO"),
        (wire(broken, b""), f"reason schema {broken} is not a valid Avro schema"),
        (wire(deep, b"\x02a\x06" + b"\x02\x02a\x06" * 100_000), f"{unfit} {deep}"),
        (wire(known, b"\x02a\x06"), WANTED),
    ):
        assert ask(value) == said
    assert ask(wire(999, b"")) == "reason schema 999 is unknown to the registry"
    assert registry.asked["GET /schemas/ids/999"] == 1, "it is asked again only after a minute"
    assert registry.asked["GET /schemas/ids/-1"] == 0


@pytest.mark.parametrize("fault", ["error", "silent", "proxy", "half"])
def test_a_registry_that_does_not_answer_is_no_fault_of_the_record(
    fault: Fault, ask: Ask, registry: FakeRegistry
) -> None:
    number = registry.add("orders-value", of(("id", "string"), ("n", "int"), (f"of_{fault}", "null")))
    registry.fault = fault
    said = ask(wire(number, b"\x02a\x06"), wait_ms=HASTY_MS)
    registry.fault = None
    registry.freed.set()
    registry.freed.clear()
    assert said.startswith(f"away FALKIRK_REGISTRY_AWAY: the schema registry {registry.url} does not give schema")
    assert ask(wire(number, b"\x02a\x06")) == WANTED


def test_a_registry_that_is_down_is_waited_for(ask: Ask, registry: FakeRegistry) -> None:
    known = registry.add("orders-value", of(("id", "string"), ("n", "int")))
    number = registry.add("orders-value", of(("id", "string"), ("n", "int"), ("down", "null")))
    assert ask(wire(known, b"\x02a\x06")) == WANTED
    registry.stop()
    assert ask(wire(number, b"\x02a\x06"), wait_ms=HASTY_MS).startswith("away ")
    assert ask(wire(known, b"\x02a\x06")) == WANTED, "a schema that was fetched needs no registry"
    registry.start()
    registry.freed.clear()
    assert ask(wire(number, b"\x02a\x06")) == WANTED


def test_the_password_is_sent_and_never_shown(ask: Ask) -> None:
    with FakeRegistry(login="ann:hidden") as registry:
        number = registry.add("orders-value", READERS)
        value = wire(number, bytes.fromhex("02610600"))
        said = ask(value, url=registry.url, login="d3Jvbmc=", wait_ms=2_000)
        assert said.endswith("HTTP 401"), said
        assert "d3Jvbmc" not in said
        assert ask(value, url=registry.url, login="YW5uOmhpZGRlbg==") == WANTED


def test_a_request_without_time_left_does_not_hide_the_answer_before_it(ask: Ask) -> None:
    with FakeRegistry(fault="once") as registry:
        said = ask(wire(1, b""), url=registry.url, wait_ms=HASTY_MS)
        assert registry.asked.total() > 1
        assert said.endswith("HTTP 500"), said


def test_json_only_loses_its_prefix(ask: Ask) -> None:
    assert ask(wire(7, b"{}"), url="http://127.0.0.1:1", kind="json") == f"content {b'{}'.hex()}"
    assert ask(b"{}", kind="json").startswith("reason is not in the wire format")
