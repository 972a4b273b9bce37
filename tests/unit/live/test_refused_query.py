"""Failures of a query that mean that Spark refuses to run it, which no restart changes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import SparkError
from falkirk.runtime.live.triage import fatal_of


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
