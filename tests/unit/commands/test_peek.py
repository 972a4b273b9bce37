"""`falkirk peek`: the last records of a topic, with their writers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk.cli import main
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import LogId
from falkirk.user_tools.commands.records import TopicRecords, as_text
from falkirk.user_tools.commands.shown_values import ShownValues
from tests.registries import FakeRegistry, wire
from tests.unit.commands.told_origins import AVRO, HELD, HOP, Shop, file_of, made


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch)


@pytest.fixture
def file(shop: Shop) -> Path:
    return file_of(shop)


def peeked(file: Path, *options: str) -> list[dict[str, Any]]:
    told = CliRunner().invoke(main, ["peek", str(file), *options, "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    found: list[dict[str, Any]] = json.loads(told.output)
    return found


def places(found: list[dict[str, Any]]) -> list[str]:
    return [f"{each['partition']}@{each['offset']}" for each in found]


def test_the_newest_or_the_oldest_records_of_all_partitions_by_their_times(shop: Shop, file: Path) -> None:
    for n in range(30):
        shop.send("orders", {"n": n}, partition=n % 2)
    assert places(peeked(file, "orders", "-n", "3")) == ["1@13", "0@14", "1@14"]
    assert places(peeked(file, "orders", "-n", "3", "--from-beginning")) == ["0@0", "1@0", "0@1"]
    assert len(peeked(file, "orders", "-n", "500")) == 30
    shop.begins["orders", 0], shop.begins["orders", 1] = 14, 15
    assert places(peeked(file, "orders")) == ["0@14"]


def test_records_that_the_application_deletes_meanwhile_are_left_out(shop: Shop, file: Path) -> None:
    for n in range(9):
        shop.send(HELD, {"n": n}, by=f"0.0.{n}")
    shop.deleted_at_next_read[HELD] = 6
    assert places(peeked(file, HELD, "--from-beginning", "-n", "2")) == ["0@6", "0@7"]
    shop.begins.clear()
    shop.deleted_at_next_read[HELD] = 6
    assert places(peeked(file, HELD, "-n", "5")) == ["0@6", "0@7", "0@8"]


def test_markers_of_transactions_are_no_records(shop: Shop, file: Path) -> None:
    """A fenced topic may end with many markers: the command looks further back until it has enough records."""
    for n in range(5):
        shop.send("orders", {"n": n})
    for _ in range(200):
        shop.mark("orders")
    assert places(peeked(file, "orders", "-n", "3")) == ["0@2", "0@3", "0@4"]


def test_each_record_of_ours_names_its_writer_and_its_cause(shop: Shop, file: Path) -> None:
    order = shop.send("orders", {"item": "tea"}, partition=1)
    shop.send(HOP, {"item": "tea"}, by="0.1.0")
    shop.send("sales", {"item": "tea"}, by="0.0.0", incarnation=3, key=b"tea")
    shop.send("sales", b"\x1b[2Jjam")
    shop.send("vouchers", {}, by="0.0.7")
    shop.send("reports", {}, by="0.0.4.2")
    ours, foreign = peeked(file, "sold")
    assert (ours["unit"], ours["incarnation"], ours["stamp"], ours["key"]) == ("sales", 3, [0, 0, 0], "tea")
    assert foreign["foreign"] == "no header of Falkirk"
    assert "unit" not in peeked(file, "orders")[0], "the users wrote it"

    def shown(topic: str) -> str:
        told = CliRunner().invoke(main, ["peek", str(file), topic], catch_exceptions=False)
        assert told.exit_code == 0
        return told.output

    assert "sales #3" in shown("sales")
    assert f"{HOP}/0@0" in shown("sales")
    assert "foreign" in shown("sales")
    assert "\x1b" not in shown("sales")
    assert order in shown(HOP)
    assert f"{HELD}/0@7" in shown("vouchers")
    assert "epoch 4, row 2" in shown("reports")


def test_avro_is_shown_as_json_also_before_its_release(shop: Shop, file: Path) -> None:
    shop.send("vouchers", b"\x06tea", by="0.0.0")
    shop.send("vouchers", b"tea", by="0.0.1")
    shop.send(HELD, b"\x06tea", by="0.0.0")
    good, bad = peeked(file, "vouched")
    assert good["value"] == '{"item": "tea"}'
    assert bad["value"] == "Avro that does not fit its schema: 0x746561"
    assert peeked(file, HELD)[0]["value"] == '{"item": "tea"}'
    told = CliRunner().invoke(main, ["peek", str(file), "vouchers"], catch_exceptions=False).output
    assert '{"item": "tea"}' in told
    why = CliRunner().invoke(main, ["why", str(file), "vouchers/0@0"], catch_exceptions=False).output
    assert why.count('{"item": "tea"}') == 2, "the copy and the held result"


def avro_source(registry: FakeRegistry, format: Any = "avro") -> ShownValues:
    app = fk.App("shop", kafka="nowhere:1")
    schema = AVRO if format == "avro" else "item STRING"
    app.source("orders", fk.Kafka("orders", schema=schema, format=format, registry=registry.url))
    return ShownValues(app, {})


def test_avro_with_the_id_of_a_registry_is_decoded_with_the_schema_of_its_writer() -> None:
    orders = LogId("orders")
    with FakeRegistry() as registry:
        fields = [{"name": "n", "type": "long"}, {"name": "item", "type": "string"}]
        number = registry.add("orders-value", {"type": "record", "name": "order", "fields": fields})
        other = registry.add("other-value", "message Order {}", schemaType="PROTOBUF")
        values, unfit = avro_source(registry), wire(number, b"\x02")
        assert values.text(orders, wire(number, b"\x02\x06tea")) == '{"n": 1, "item": "tea"}'
        assert values.text(orders, unfit) == f"Avro of schema {number} that does not fit its schema: 0x{unfit.hex()}"
        for unknown in (other, 99):
            assert "(REGISTRY_REFUSED): 0x" in str(values.text(orders, wire(unknown, b"")))
        assert values.text(orders, b"\x06tea") == "Avro without the id of a schema: 0x06746561"
        assert values.text(orders, None) is None
        assert registry.count("GET /schemas/ids/") == 3
        json_values = avro_source(registry, "json")
        assert json_values.text(orders, wire(number, b'{"item": "tea"}')) == '{"item": "tea"}'


def test_a_registry_that_is_away_is_asked_about_a_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.user_tools.commands.shown_values._WAIT_S", 0.0)
    with FakeRegistry(fault="error") as registry:
        values = avro_source(registry)
        for _ in range(3):
            text = values.text(LogId("orders"), wire(7, b"\x06tea"))
            assert text == "Avro of schema 7 that the registry did not return (REGISTRY_AWAY): 0x000000000706746561"
        assert registry.count("GET /schemas/ids/7") == 1


def test_a_command_waits_for_a_registry_once_and_not_longer_than_the_time_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ids come from values, so each value may have another one."""
    monkeypatch.setattr("falkirk.user_tools.commands.shown_values._WAIT_S", 0.2)
    with FakeRegistry(fault="silent") as registry:
        values, begun_s = avro_source(registry), time.monotonic()
        for number in range(20):
            assert "(REGISTRY_AWAY)" in str(values.text(LogId("orders"), wire(number, b"\x06tea")))
        assert time.monotonic() - begun_s < 4, "one request alone may take 5 s at a start"
        assert registry.asked.total() == 1


def test_only_values_that_are_used_are_decoded(shop: Shop) -> None:
    for n in range(8):
        shop.send("orders", {"n": n}, partition=n % 2)
    decoded = list[bytes | None]()
    place = Storage(home=shop.home, connection=Connection.of("nowhere:1"))

    def noted(topic: LogId, value: bytes | None) -> str | None:
        decoded.append(value)
        return as_text(value)

    records = TopicRecords(place, noted)
    found = records.last(LogId("orders"), 2)
    assert (sum(shop.read), decoded) == (4, [])
    assert [each.content["n"] for each in found for _ in range(2)] == [6, 6, 7, 7]
    assert decoded == [b'{"n": 6}', b'{"n": 7}'], "each once"


def test_a_record_can_be_pasted_into_why(shop: Shop, file: Path) -> None:
    shop.send("orders", {"item": "tea"}, partition=1)
    shop.send(HOP, {"item": "tea"}, by="0.1.0")
    shop.send("sales", {"item": "tea"}, by="0.0.0", incarnation=3, key=b"tea")
    for topic, record in (("sold", "sales/0@0"), (HOP, f"{HOP}/0@0")):
        told = CliRunner().invoke(main, ["peek", str(file), topic], catch_exceptions=False)
        pasted = told.output.splitlines()[3].split()[1]
        assert pasted == record
        why = CliRunner().invoke(main, ["why", str(file), pasted, "--no-recompute"], catch_exceptions=False)
        assert why.output.startswith(f"{record}  "), why.output
        assert "orders/1@0" in why.output


@pytest.mark.parametrize(("width", "shows_cause"), [(110, True), (80, False)])
def test_a_narrow_table_keeps_the_record_and_its_value(
    width: int, shows_cause: bool, shop: Shop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the causes left no place for the values."""
    monkeypatch.setattr("falkirk.user_tools.commands.printing.WIDTH", width)
    shop.send(HOP, {"item": "tea"}, by="0.1.0")
    shop.send("sales", {"item": "tea"}, by="0.0.0", incarnation=3, key=b"tea")
    shown = CliRunner().invoke(main, ["peek", str(file), "sold"], catch_exceptions=False).output
    assert "sales/0@0" in shown
    assert '{"item": "tea"' in shown
    assert (f"{HOP}/0@0" in shown) == shows_cause


def test_a_topic_that_is_not_there_or_of_others_is_refused(shop: Shop, file: Path) -> None:
    for topic, condition in (("payroll", "TOPIC_NOT_OURS"), ("vouchers", "TOPIC_MISSING")):
        told = CliRunner().invoke(main, ["peek", str(file), topic])
        assert told.exit_code == 1, condition
    shop.records["vouchers"] = {0: [], 1: []}
    assert peeked(file, "vouchers") == []
