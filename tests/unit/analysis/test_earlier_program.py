"""A home whose states an earlier version made in another form: it is refused with its own error."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import HomeError
from falkirk.recovery.decision_store import RegionRecord
from falkirk.runtime.spark.record import compare

EARLIER = "iterate-1: 0-left(n bigint); 1-result(n bigint); program 0123456789abcdef"
NOW = EARLIER.replace("program ", "program 4:")


def compared(before: str, now: str, part: str = "state") -> str:
    """Return the condition of the error, if there is one."""
    unit: Any = SimpleNamespace(name="ranks", where=None, fingerprint={part: now}, may_change_steps=False)
    try:
        compare(unit, RegionRecord(fingerprint={part: before}, start_offsets={}, partitions={}), {})
    except HomeError as error:
        return error.condition
    return ""


@pytest.mark.parametrize(
    ("before", "condition"),
    [(EARLIER, "HOME_VERSION"), (NOW.replace("4:", "2:"), "HOME_VERSION"),
     (NOW.replace("4:", "3:"), "HOME_VERSION"), (NOW, ""),
     (NOW.replace("cdef", "cdee"), "APPLICATION_CHANGED"),
     (f"{EARLIER}; iterate-2: program 4:0123456789abcdef", "HOME_VERSION")],
)  # fmt: skip
def test_a_program_that_an_earlier_version_has_recorded_is_refused(before: str, condition: str) -> None:
    assert compared(before, NOW) == condition


@pytest.mark.parametrize(
    ("before", "condition"),
    [("agg(word; count(*))", "HOME_VERSION"), ("agg(word; count(*)), and the last record", ""),
     ("agg(word; count(n))", "APPLICATION_CHANGED")],
)  # fmt: skip
def test_a_state_with_the_record_of_the_greatest_stamp_is_refused(before: str, condition: str) -> None:
    assert compared(before, "agg(word; count(*)), and the last record", "keyed step") == condition
