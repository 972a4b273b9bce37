"""A home in which an earlier version recorded an iteration's program: it is refused with its own error."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import HomeError
from falkirk.recovery.decision_store import RegionRecord
from falkirk.runtime.spark.record import compare

EARLIER = "iterate-1: 0-left(n bigint); 1-result(n bigint); program 0123456789abcdef"
NOW = EARLIER.replace("program ", "program 3:")


def compared(before: str, now: str) -> str:
    """Return the condition of the error, if there is one."""
    batch: Any = SimpleNamespace(name="ranks", where=None, fingerprint={"state": now})
    try:
        compare(batch, RegionRecord(fingerprint={"state": before}, start_offsets={}, partitions={}), {})
    except HomeError as error:
        return error.condition
    return ""


@pytest.mark.parametrize(
    ("before", "condition"),
    [(EARLIER, "HOME_VERSION"), (NOW.replace("3:", "2:"), "HOME_VERSION"), (NOW, ""),
     (NOW.replace("cdef", "cdee"), "APPLICATION_CHANGED"),
     (f"{EARLIER}; iterate-2: program 3:0123456789abcdef", "HOME_VERSION")],
)  # fmt: skip
def test_a_program_that_an_earlier_version_has_recorded_is_refused(before: str, condition: str) -> None:
    assert compared(before, NOW) == condition
