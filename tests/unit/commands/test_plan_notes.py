"""The notes of `falkirk plan` about topics whose number of partitions it does not know."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from falkirk.cli import main
from falkirk.errors import LogError
from falkirk.plan.explain.preview import partitions_of


@dataclass
class FakeTopics:
    """Answers with numbers of partitions, and raises the conditions. Args: login: the condition of its error."""

    answers: dict[str, int | str]
    asked: list[str] = field(default_factory=list)
    login: str = ""

    def await_broker(self, timeout_s: float) -> None:
        if self.login:
            raise LogError(self.login, "")

    def facts(self, topic: str) -> Any:
        self.asked.append(topic)
        answer = self.answers[topic]
        if isinstance(answer, str):
            raise LogError(answer, "")
        return SimpleNamespace(partitions=answer)


def noted(**answers: int | str) -> tuple[dict[str, int], tuple[str, ...], list[str]]:
    """Return the known numbers, the notes, and the topics about which the broker was asked."""
    topics: Any = FakeTopics(answers)
    known, notes = partitions_of(topics, answers, "broker:9092")
    return known, notes, topics.asked


def test_a_plan_with_all_topics_has_no_note() -> None:
    assert noted(orders=5, clicks=3) == ({"orders": 5, "clicks": 3}, (), ["orders", "clicks"])


def test_a_silent_broker_is_named_once_and_asked_once() -> None:
    known, (note,), asked = noted(orders="BROKER_AWAY", clicks="BROKER_AWAY")
    assert (known, asked) == ({}, ["orders"])
    assert "broker:9092" in note


def test_a_refused_login_fails_even_if_no_topic_is_asked_about() -> None:
    for names in ((), ("orders",)):
        topics: Any = FakeTopics(dict.fromkeys(names, 2), login="ACCESS_REFUSED")
        with pytest.raises(LogError) as error:
            partitions_of(topics, names, "broker:9092")
        assert error.value.condition == "ACCESS_REFUSED"


def test_a_broker_that_is_away_is_named_even_if_no_topic_is_asked_about() -> None:
    topics: Any = FakeTopics({}, login="BROKER_AWAY")
    assert partitions_of(topics, (), "broker:9092") == ({}, ("broker:9092 does not answer.",))
    topics = FakeTopics({"orders": 2}, login="BROKER_AWAY")
    known, (note,) = partitions_of(topics, ("orders",), "broker:9092")
    assert (known, topics.asked) == ({}, [])
    assert note == "broker:9092 does not answer, so 2 partitions are assumed for each topic."


def test_a_broker_that_refuses_to_list_its_topics_is_named_and_asked_about_each() -> None:
    """It has accepted the login, so the plan need not fail."""
    topics: Any = FakeTopics({"orders": 3, "clicks": "KAFKA_REFUSED"}, login="KAFKA_REFUSED")
    known, notes = partitions_of(topics, ("orders", "clicks"), "broker:9092")
    assert (known, topics.asked) == ({"orders": 3}, ["orders", "clicks"])
    assert notes == (
        "broker:9092 does not list its topics (KAFKA_REFUSED).",
        "topic clicks can't be read (KAFKA_REFUSED), so 2 partitions are assumed.",
    )
    topics = FakeTopics({"orders": "BROKER_AWAY"}, login="KAFKA_REFUSED")
    notes = partitions_of(topics, ("orders",), "broker:9092")[1]
    assert notes[1] == "broker:9092 does not answer, so 2 partitions are assumed for each topic."


def test_each_topic_that_is_missing_or_closed_is_named() -> None:
    known, (missing, closed), _ = noted(orders="TOPIC_MISSING", clicks="ACCESS_REFUSED", pages=4)
    assert known == {"pages": 4}
    assert "topic orders" in missing
    assert "topic clicks" in closed
    assert "ACCESS_REFUSED" in closed


def test_a_plan_may_ask_the_broker_for_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other commands have --local, and `falkirk init` names no broker in the file."""
    asked = list[str | None]()

    def preview(app: object, *, kafka: str | None, home: object, master: object, secure: object) -> Any:
        asked.append(kafka)
        return SimpleNamespace(as_json=dict)

    monkeypatch.setattr("falkirk.plan.explain.preview.preview", preview)
    monkeypatch.setattr("falkirk.user_tools.commands.running.local_broker", lambda: "127.0.0.1:9092")
    file = tmp_path / "shop.py"
    file.write_text('import falkirk as fk\n\napp = fk.App("shop")\n')
    for options in (["--local"], []):
        told = CliRunner().invoke(main, ["plan", str(file), "--json", *options], catch_exceptions=False)
        assert told.exit_code == 0, told.output
    assert asked == ["127.0.0.1:9092", None]
