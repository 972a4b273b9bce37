"""Planning: a checkpoint depends on parts of the session and of a step's text: a restart with other ones is refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.declare.nodes import ProcessorNode, Step
from falkirk.declare.stream import Stream
from falkirk.plan.batch import Batch
from falkirk.plan.fingerprint import LANGUAGE, text_of
from falkirk.plan.planner import plan_application
from falkirk.plan.region import Region
from falkirk.recovery.decision_store import RegionRecord
from falkirk.runtime.spark.record import compare
from tests.integration.planning import Body

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


def planned(session: "SparkSession", *, body: Body = lambda s: s.groupBy("s").count()) -> dict[str, Region | Batch]:
    """Plan a live region and a batch in a session."""
    app = fk.App("planned")
    app.source("events", fk.Kafka("events", schema="s STRING, t TIMESTAMP", key="s"))
    app.add_processor("counts", body, reads=("events",), policy=fk.Lazy())

    @app.batch(rows=10)
    def hours(events: Any) -> Any:
        return events.select(F.hour("t").alias("h"))

    app.sink("live", "counts", fk.Kafka("live"))
    app.sink("batch", hours, fk.Kafka("batch"))
    plan = plan_application(app, session, "deadbeef")
    return {"live": plan.regions[0], "batch": plan.batches[0]}


def _checked(region: Region | Batch, fingerprint: dict[str, str]) -> None:
    compare(region, RegionRecord(fingerprint=fingerprint, start_offsets={}, partitions={}), {})


@pytest.mark.parametrize("kind", ["live", "batch"])
@pytest.mark.parametrize(
    ("setting", "value", "what", "was"),
    [(ZONE, "Europe/Berlin", "time zone", "UTC"), (ANSI, "false", "ANSI mode", "true")],
)
def test_another_time_zone_or_ansi_mode_is_another_application(
    spark: "SparkSession", kind: str, setting: str, value: str, what: str, was: str
) -> None:
    before, session = planned(spark)[kind], spark.newSession()
    session.conf.set(ZONE, "UTC")
    session.conf.set(setting, value)
    after = planned(session)[kind]
    with pytest.raises(fk.HomeError, match=f"{what}: was {was}, is {value}") as caught:
        _checked(after, before.fingerprint)
    assert caught.value.parameters["changed"] == {what: (was, value)}
    assert caught.value.condition == "APPLICATION_CHANGED"


@contextmanager
def speaking(session: "SparkSession", language: str) -> Iterator[None]:
    """Give the JVM another default language for a while, as a user's own JVM may have."""
    jvm: Any = session._jvm
    locale = jvm.java.util.Locale
    before = locale.getDefault()
    locale.setDefault(locale.forLanguageTag(language))
    try:
        yield
    finally:
        locale.setDefault(before)


def test_a_jvm_with_another_language_is_another_application(spark: "SparkSession") -> None:
    """Under Turkish, the upper case of i is another letter, so a state would have other keys."""

    def upper() -> str:
        rows = spark.createDataFrame([("\u00e4i",)], "s STRING")
        return str(rows.selectExpr("upper(s) AS s").collect()[0].s)

    before, english = planned(spark), upper()
    with speaking(spark, "tr-TR"):
        after = planned(spark)
        assert upper() != english
    for kind, region in after.items():
        with pytest.raises(fk.HomeError, match=f"{LANGUAGE}: was en, is tr") as caught:
            _checked(region, before[kind].fingerprint)
        assert caught.value.condition == "APPLICATION_CHANGED"


@pytest.mark.parametrize("kind", ["live", "batch"])
def test_a_home_that_has_not_recorded_them_goes_on(spark: "SparkSession", kind: str) -> None:
    region, new = planned(spark)[kind], ("time zone", "ANSI mode", LANGUAGE)
    earlier = {name: text for name, text in region.fingerprint.items() if name not in new}
    assert len(earlier) == len(region.fingerprint) - len(new)
    _checked(region, earlier)


@pytest.mark.parametrize(
    "column",
    [
        lambda n: F.concat(F.uuid(), F.lit(n).cast("string")),
        lambda n: F.uniform(F.lit(0), F.lit(n)),
        lambda n: F.uniform(F.lit(0), F.lit(n), F.lit(7)),
        lambda n: F.shuffle(F.array(F.lit(n))),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_number_beside_a_seed_is_not_taken_for_one(column: Any) -> None:
    def text(n: int) -> str:
        """Return the text of a step. Spark refuses it in a keyed one, whose text is in the fingerprint."""
        stream = Stream(ProcessorNode(name="events")).groupBy("s").agg(column(n), fk.latest_value(F.rand()))
        assert isinstance(stream.node, Step)
        return text_of(stream.node)

    assert text(12345678901) == text(12345678901)
    assert text(12345678901) != text(12345678902)
