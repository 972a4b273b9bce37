"""Failures of a query that mean that Spark refuses to run it, which no restart changes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import FalkirkError, LogError, SparkError
from falkirk.runtime.spark.live.triage import fatal_of
from falkirk.steps.dataframes.names import CO_PARTITIONING


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (
            "[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] Streaming real-time mode has the following "
            "limitation: The operator(s): BatchEvalPythonExec is not in the operator allowlist.\n\tat org.apache…",
            "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
        ),
        (
            '[AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION] Non-deterministic expression "max(now)" should not',
            "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION",
        ),
        ("[TASK_WRITE_FAILED] Task failed while writing rows", None),
    ],
)
def test_what_spark_refuses_to_run_is_told_at_once_and_by_name(text: str, condition: str | None) -> None:
    source = SimpleNamespace(topic=SimpleNamespace(topic="events"))
    live = SimpleNamespace(region=SimpleNamespace(name="out", source=source, where="shop.py:7"))
    error = fatal_of(RuntimeError(text), cast("Any", live), cast("Any", None))
    if condition is None:
        assert error is None
        return
    assert isinstance(error, SparkError)
    assert (error.condition, error.where) == ("QUERY_NOT_STARTED", "shop.py:7")
    assert error.parameters["spark_condition"] == condition
    assert "\n" not in error.message


class Topics:
    """The topics of a broker, of which one was deleted or replaced."""

    def __init__(self, lost: str, *, replaced: bool) -> None:
        self._lost, self._replaced = lost, replaced

    def exists(self, topic: str) -> bool:
        if topic == self._lost and self._replaced:
            raise LogError("TOPIC_REPLACED", f"{topic} was made again")
        return topic != self._lost


def of_a_list(text: str, *, lost: str = "", replaced: bool = False) -> FalkirkError | None:
    sources = [
        SimpleNamespace(topic=SimpleNamespace(topic=name, name=name, where=name)) for name in ("eu", "us", "us-web")
    ]
    region = SimpleNamespace(
        name="out", source=sources[0], sources=sources, where="shop.py:7", output=SimpleNamespace(topic="out")
    )
    context = SimpleNamespace(topics=Topics(lost, replaced=replaced))
    return fatal_of(RuntimeError(text), cast("Any", SimpleNamespace(region=region)), cast("Any", context))


@pytest.mark.parametrize("text", ["KAFKA_DATA_LOSS: us-web-0 {us: 1}", "OffsetOutOfRangeException: us-web-0=7"])
def test_the_topic_of_a_list_that_has_lost_records_is_named(text: str) -> None:
    """The name of another one may be a part of its name."""
    expired, replaced = of_a_list(text), of_a_list(text, lost="us-web", replaced=True)
    assert expired is not None
    assert (expired.condition, expired.where) == ("INPUT_EXPIRED", "us-web")
    assert replaced is not None
    assert replaced.condition == "TOPIC_REPLACED"


def test_each_deleted_topic_of_a_list_is_named() -> None:
    error = of_a_list("UnknownTopicOrPartitionException: this server does not host it", lost="us-web")
    assert error is not None
    assert (error.condition, error.parameters["topics"]) == ("TOPIC_MISSING", ("us-web",))


@pytest.mark.parametrize("released", [0, 7])
def test_a_split_key_says_whether_results_may_contradict_each_other(released: int) -> None:
    """Before, it always said that no wrong result was published."""
    topic = SimpleNamespace(topic="events", keys=("word",), where="shop.py:5")
    source = SimpleNamespace(topic=topic)
    live = SimpleNamespace(
        region=SimpleNamespace(name="out", source=source, sources=(source,), others=()),
        opening=SimpleNamespace(released=released),
    )
    text = f"[USER_RAISED_EXCEPTION] {CO_PARTITIONING}|0|1|a value SQLSTATE: P0001"
    error = fatal_of(RuntimeError(text), cast("Any", live), cast("Any", None))
    assert error is not None
    assert (error.condition, error.where) == ("NOT_CO_PARTITIONED", "shop.py:5")
    assert ("No wrong result was published" in str(error)) is not bool(released)
    assert ("results that no checkpoint covered (7)" in str(error)) is bool(released)


def test_a_machine_whose_python_can_not_run_the_function() -> None:
    step = SimpleNamespace(operation="map_rows", where="shop.py:9")
    region = SimpleNamespace(name="out", where="shop.py:7", steps=lambda: [step])
    text = "FALKIRK_PYTHON_UNSUITABLE|python3 is Python 3.7, and the driver has Python 3.11\n\tat org.falkirk…\n\tat x"
    error = fatal_of(RuntimeError(text), cast("Any", SimpleNamespace(region=region)), cast("Any", None))
    assert error is not None
    assert (error.condition, error.where) == ("PYTHON_UNSUITABLE", "shop.py:9")
    assert error.parameters["reason"] == "python3 is Python 3.7, and the driver has Python 3.11"
