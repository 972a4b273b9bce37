"""`falkirk verify outputs` counts a sink's own dead letters, also if another cluster has a topic of that name."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.declare.endpoints import Endpoint
from falkirk.declare.parts import DeclaredSink
from falkirk.declare.policy import Delivery
from falkirk.user_tools.commands import judge_places
from tests.unit.regions import WHERE


def sink(name: str, to: Endpoint) -> Any:
    return DeclaredSink(name=name, reads="b", to=to, delivery=Delivery.EXACTLY_ONCE, where=WHERE)


def test_letters_of_a_topic_of_the_same_name_on_another_cluster_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise as many missing rows of that sink would be taken for refused ones."""
    own, one = sink("own", fk.Kafka("out")), sink("one", fk.EpochTopic("out", kafka="one:1"))
    other, alone = sink("other", fk.EpochTopic("out", kafka="other:1")), sink("alone", fk.EpochTopic("lonely"))
    batch = cast(Any, SimpleNamespace(dead_letter_topic="dead", sinks=(own, one, other, alone)))
    letters = [
        {"topic": "out", "epoch": 1},
        {"topic": "out", "epoch": 2, "sink": "one"},
        {"topic": "out", "epoch": 3, "sink": "other"},
        {"topic": "lonely", "epoch": 4},  # by an earlier version
        {"topic": "lonely", "epoch": 5, "sink": "alone"},
    ]
    records = [SimpleNamespace(value=json.dumps({"reason": "not written: x", **each}).encode()) for each in letters]
    monkeypatch.setattr(judge_places, "read_topic", lambda *_: records)
    connection = cast(Any, SimpleNamespace(client_options=dict))
    found = [dict(judge_places.refused_rows(connection, batch, each)) for each in (own, one, other, alone)]
    assert found == [{1: 1}, {2: 1}, {3: 1}, {4: 1, 5: 1}]
