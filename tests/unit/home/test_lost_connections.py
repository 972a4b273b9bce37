"""A failure that names a lost connection alone hides its cause, so it counts a quarter: a later try may show it."""

import pytest

from falkirk.runtime.spark.retry import FAILURES_MAX
from falkirk.runtime.supervision.failures import CONNECTIONS_PER_FAILURE, Cause, Failures, cause_of

#: Shortened errors of Spark 4.3. The state task of the first one had found a damaged file.
LOST = (
    "Job aborted due to stage failure: Task 0 in stage 34.0 failed 1 times, most recent failure: Lost task 0.0 in stage"
    " 34.0 (TID 68) (192.0.2.2 executor driver): io.netty.channel.StacklessClosedChannelException\n"
    "\tat io.netty.channel.AbstractChannel$AbstractUnsafe.write(Object, ChannelPromise)(Unknown Source)"
)
OTHERS = (
    "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
    "a record said: io.netty.channel.StacklessClosedChannelException",
)


@pytest.mark.parametrize(("text", "cause"), [(LOST, Cause.CONNECTION), *((text, Cause.OWN) for text in OTHERS)])
def test_its_cause_is_told_from_others(text: str, cause: Cause) -> None:
    assert cause_of(RuntimeError(text), was_lost=False) is cause


def test_a_lost_executor_is_the_better_cause() -> None:
    assert cause_of(RuntimeError(LOST), was_lost=True) is Cause.LOSS


def test_several_count_as_one_failure() -> None:
    """So a region that can't be helped stays down all the same."""
    failures, last = Failures(), FAILURES_MAX * CONNECTIONS_PER_FAILURE
    for number in range(1, last + 1):
        failures.add("a", LOST, Cause.CONNECTION)
        assert failures.is_exhausted("a") is (number == last)
    failures.forget("a")
    assert not failures.is_exhausted("a")


def test_a_proven_damage_explains_the_failures_before_it() -> None:
    """Otherwise a region would stay down as soon as it knows which checkpoint not to use."""
    failures = Failures()
    for _ in range(FAILURES_MAX - 1):
        failures.add("a", "unknown")
    failures.add("a", "damaged", Cause.DAMAGE)
    assert not failures.is_exhausted("a")
