"""Reasons: the sentences of `falkirk plan` about operations."""

from falkirk.plan.reasons import differing
from falkirk.steps.static_analysis.functions import operation_name


def test_operations_with_one_name_are_named_once() -> None:
    """Spark has several operations that call Python, and users know one."""
    assert operation_name("MapInPandas") == operation_name("PythonUDF") == "a Python function"
    assert differing(["MapInPandas", "PythonUDF"], within="mapped") == (
        "A Python function in mapped may give a different value in a replay"
    )
    assert differing(["Uuid", "PythonUDF"]) == "`uuid()` and a Python function may give different values in a replay"
