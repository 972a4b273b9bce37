"""Parts of a record as columns: the values that an `fk.Kafka` accepts."""

from typing import Any

import pytest

import falkirk as fk
from tests.unit.declare.test_declare import EVENTS, refused


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ((), {}),
        ("key", {"key": "key"}),
        ("topic", {"topic": "topic"}),
        (["headers", "offset"], {"headers": "headers", "offset": "offset"}),
        ({"timestamp": "arrived"}, {"timestamp": "arrived"}),
    ],
)
def test_parts_of_a_record_are_columns_on_demand(given: Any, columns: dict[str, str]) -> None:
    topic = fk.Kafka("events", schema="n INT", metadata=given)
    assert topic.record_columns == columns
    assert topic.reads_headers == ("headers" in columns)


@pytest.mark.parametrize(
    "given", ["value", ["topics"], [["key"]], {"key": ""}, {"key": None}, {"Key": "k"}, True, None]
)
def test_other_parts_are_refused(given: Any) -> None:
    refused(lambda: fk.Kafka("events", schema="n INT", metadata=given), "OPTION_UNKNOWN", value=given)


def test_a_sink_has_no_parts_of_records() -> None:
    app = fk.App("plain")
    app.source("events", EVENTS)

    @app.stream()
    def same(events: fk.Stream) -> fk.Stream:
        return events

    refused(lambda: app.sink("out", same, fk.Kafka("out", metadata="key")), "OPTION_UNKNOWN", topic="out")
