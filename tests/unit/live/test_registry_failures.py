"""A schema registry that does not answer is no failure of a region or of an epoch, however long it lasts."""

from falkirk.errors import is_away
from falkirk.errors.conditions.registry import REGISTRY_AWAY
from falkirk.runtime.spark.causes import registry_away
from falkirk.runtime.spark.epochs.failures import passes, retry_text, waits_for
from falkirk.runtime.spark.retry import FAILURES_MAX
from falkirk.runtime.supervision.failures import REGISTRY_S, Cause, Failures, cause_of, shown_reason
from falkirk.theory.ids import EpochNumber

SAID = "the schema registry http://r does not give schema 7: HTTP 500"
AWAY = Exception(
    f"Job aborted\norg.falkirk.RegistryAway: FALKIRK_REGISTRY_AWAY: {SAID}\n\tat org.falkirk.SchemaRegistry"
)


def test_it_is_recognized_by_its_marker() -> None:
    assert registry_away(AWAY) == SAID
    assert registry_away(Exception("WireFormat(http://r)")) is None


def test_a_region_waits_without_a_limit() -> None:
    failures = Failures()
    cause = cause_of(AWAY, was_lost=True)
    assert cause is Cause.REGISTRY
    assert shown_reason(AWAY) == SAID, "the status began with Spark's line about the job"
    assert shown_reason(ValueError("first\nsecond")) == "first"
    for _ in range(FAILURES_MAX + 1):
        failures.add("region", SAID, cause)
        assert failures.pause_s("region", cause) == REGISTRY_S
    assert not failures.is_exhausted("region")
    assert not failures.has_failed("region")


def test_an_epoch_waits_without_a_limit() -> None:
    assert passes(AWAY)
    assert waits_for(AWAY) == f"waiting: {SAID}"
    assert retry_text(AWAY, EpochNumber(3)) == f"epoch 3 failed, waiting: {SAID}"


def test_a_start_waits_for_it() -> None:
    assert is_away(REGISTRY_AWAY.error(url="http://r", doing="x", reason="y"))
