"""When a record on which a live function failed can be sent again: the promise of the region decides."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.runtime.spark.rows import resend_after_failure

_SAME = {
    "deterministic": True, "varying": (), "undetermined": None, "repeats": False, "reorders": False,
    "sources": (SimpleNamespace(is_hop=False),),
}  # fmt: skip
_DIFFERENT = {"deterministic": False, "undetermined": "a cause"}


@pytest.mark.parametrize(
    ("facts", "resend"),
    [
        ({}, "safe"),
        ({"repeats": True}, "safe"),
        ({"reorders": True}, "safe"),
        (_DIFFERENT, "once_covered"),
        ({**_DIFFERENT, "repeats": True}, "may_change"),
        ({**_DIFFERENT, "reorders": True}, "may_change"),
        ({**_DIFFERENT, "sources": (SimpleNamespace(is_hop=False), SimpleNamespace(is_hop=True))}, "may_change"),
        ({"varying": ("rand",)}, "may_change"),
        ({"undetermined": "a cause in another region"}, "may_change"),
    ],
)
def test_the_promise_of_a_region_decides(facts: dict[str, Any], resend: str) -> None:
    region: Any = SimpleNamespace(**{**_SAME, **facts})
    assert resend_after_failure(region) == resend
