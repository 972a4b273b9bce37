"""Reading topics to their end, from librdkafka's simulated broker, and turning records into outputs."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from falkirk.checker import OutputRow, RowPlace, TopicRecord, decode_json, outputs_of, read_topic
from falkirk.cli import main
from falkirk.errors import LogError


@pytest.fixture(scope="module")
def broker() -> Iterator[dict[str, str]]:
    """Yield settings for a simulated broker, which lives as long as the client that owns it."""
    owner = Producer({"bootstrap.servers": "simulated", "test.mock.num.brokers": 1, "log_level": 0})
    [node] = owner.list_topics(timeout=10).brokers.values()
    yield {"bootstrap.servers": f"{node.host}:{node.port}"}
    owner.flush(0)


def produce(broker: dict[str, str], topic: str, values: list[tuple[int, str]]) -> None:
    producer = Producer(broker)
    for partition, value in values:
        producer.produce(topic, key=b"k", value=value.encode(), partition=partition, headers={"stamp": b"ignored"})
    assert producer.flush(10) == 0


def test_every_record_up_to_the_end_is_read_once_and_empty_partitions_do_not_matter(
    broker: dict[str, str],
) -> None:
    produce(broker, "plain", [(partition, str(n)) for n in range(50) for partition in (0, 2)])
    records = list(read_topic(broker, "plain", silence_s=20))
    for partition in (0, 2):
        mine = [record for record in records if record.partition == partition]
        assert [record.offset for record in mine] == list(range(50))
        assert [record.value for record in mine] == [str(n).encode() for n in range(50)]
    assert len(records) == 100
    assert records[0].key == b"k"
    assert records[0].timestamp_ms is not None


def test_a_transaction_marker_at_the_end_does_not_keep_the_reader_waiting(broker: dict[str, str]) -> None:
    producer = Producer({**broker, "transactional.id": "checked"})
    producer.init_transactions(10)
    for n in range(2):
        producer.begin_transaction()
        producer.produce("marked", value=str(n).encode(), partition=0)
        producer.commit_transaction(10)
    records = list(read_topic(broker, "marked", silence_s=20))
    assert [record.value for record in records] == [b"0", b"1"]
    assert records[1].offset > 1


def test_a_missing_topic_is_named(broker: dict[str, str]) -> None:
    with pytest.raises(LogError) as refusal:
        list(read_topic(broker, "nowhere"))
    assert refusal.value.condition == "TOPIC_MISSING"
    assert refusal.value.parameters["topic"] == "nowhere"


def record(value: bytes | None, key: bytes | None = b"spark") -> TopicRecord:
    return TopicRecord(topic="out", partition=1, offset=7, timestamp_ms=None, key=key, value=value)


def test_outputs_carry_the_fields_of_the_value_and_the_place() -> None:
    values = {"word": "spark", "positions": [1, 2]}
    [output] = outputs_of([record(json.dumps(values).encode())])
    assert output == OutputRow(key="spark", place=RowPlace("out", 1, 7), values=values)


def test_a_key_that_is_no_text_is_not_taken_for_one() -> None:
    keys = [output.key for output in outputs_of([record(b"{}", key=key) for key in (b"\xff", rb"\xff", None, b"None")])]
    assert len(set(keys)) == 4


def test_the_key_can_be_taken_from_the_fields() -> None:
    [output] = outputs_of([record(b'{"word": "spark"}', key=None)], key=lambda _, values: str(values["word"]))
    assert output.key == "spark"


@pytest.mark.parametrize("value", [None, b"", b"[1]", b"{", b"\xff"])
def test_what_is_no_json_object_is_kept_as_something_that_nothing_explains(value: bytes | None) -> None:
    assert list(decode_json(value)) == ["(not a JSON object)"]


def test_the_command_judges_topics_of_any_system(broker: dict[str, str]) -> None:
    rows = [{"user": f"u{n % 3}", "amount": n} for n in range(30)]
    produce(broker, "orders", [(n % 2, json.dumps(row)) for n, row in enumerate(rows)])
    due: dict[str, int] = {}
    totals = []
    for row in sorted(rows, key=lambda row: row["amount"] % 2):  # one partition, then the other
        user = str(row["user"])
        due[user] = due.get(user, 0) + int(row["amount"])
        totals.append((0, json.dumps({"user": user, "total": due[user]})))
    produce(broker, "totals", totals)
    arguments = ["--input", "kafka:orders", "--output", "kafka:totals", "--key", "user", "--model", "total=sum(amount)"]
    client = ["--client", "client.id=judge", "--kafka", broker["bootstrap.servers"]]
    assert CliRunner().invoke(main, ["verify", "run", *arguments, *client]).exit_code == 0
    produce(broker, "totals", totals[4:5])
    refused = CliRunner().invoke(main, ["verify", "run", *arguments, *client, "--json"])
    assert refused.exit_code == 1
    [anomaly] = json.loads(refused.output)["anomalies"]
    assert (anomaly["kind"], [place["offset"] for place in anomaly["outputs"]]) == ("duplicate", [4, 30])
    assert CliRunner().invoke(main, ["verify", "run", *arguments, "--client", "nonsense"]).exit_code == 2
