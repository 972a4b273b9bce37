"""The note about topics whose producers choose the clock by which a live region refuses times in the future."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.kafka_client.topics import TopicFacts
from falkirk.plan.plan import Plan
from falkirk.plan.topics import notes_on_clocks


def step(operation: str, *arguments: object) -> Any:
    return SimpleNamespace(operation=operation, arguments=arguments)


WATERMARK = step("withWatermark", SimpleNamespace(ahead_us=60_000_000))


def region(topic: str, *steps: Any) -> Any:
    source = SimpleNamespace(topic=SimpleNamespace(topic=topic))
    return SimpleNamespace(sources=(source,), steps=lambda: steps)


def noted(kind: str, after_ms: int | None, *regions: Any) -> tuple[str, ...]:
    """Return the notes if all topics have these settings."""

    def facts(topic: str) -> TopicFacts:
        return TopicFacts(
            topic=topic, partitions=1, cleanup_policy="delete", max_message_bytes=1, retention_ms=-1,
            message_timestamp_type=kind, timestamp_after_max_ms=after_ms,
        )  # fmt: skip

    plan, topics = SimpleNamespace(regions=regions, push=(region("requests").sources[0],)), SimpleNamespace(facts=facts)
    return notes_on_clocks(cast(Plan, plan), cast(Any, topics))


@pytest.mark.parametrize(
    ("after_ms", "late_by"),
    [(None, "any length of time"), (2**63 - 1, "any length of time"), (3_600_000, "3660 s"), (60_000, "120 s")],
)
def test_a_topic_whose_producers_choose_the_clock_is_named(after_ms: int | None, late_by: str) -> None:
    (note,) = noted("CreateTime", after_ms, region("clicks", step("select"), WATERMARK))
    assert note.startswith("topic clicks: its producers choose the timestamps")
    assert f"late by {late_by}." in note
    assert note.endswith("With message.timestamp.type=LogAppendTime it is 60 s.")


def test_no_other_topic_is_named() -> None:
    assert noted("LogAppendTime", 3_600_000, region("clicks", WATERMARK)) == ()
    assert noted("CreateTime", 3_600_000, region("clicks", step("select"))) == ()
    assert noted("CreateTime", None, region("requests", WATERMARK)) == ()
