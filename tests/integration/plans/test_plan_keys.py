"""Keys and lists of live steps that Spark plans and can't run, or that Python has in another order each time."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.plan.fingerprint import with_sorted_lists
from falkirk.recovery.decision_store import RegionRecord
from falkirk.runtime.spark.record import compare
from tests.integration.planning import Body

if TYPE_CHECKING:
    from falkirk.plan.region import Region


@pytest.mark.parametrize(
    "body",
    [
        lambda s: s.groupBy(F.expr("collate(s, 'UTF8_LCASE')").alias("k")).count(),
        lambda s: s.withColumn("k", F.expr("collate(s, 'UNICODE_CI')")).groupBy("n", "k").agg(F.max("n")),
        lambda s: s.withColumn("k", F.expr("struct(collate(s, 'UTF8_LCASE') AS c)")).groupBy("k").count(),
        lambda s: s.withColumn("k", F.expr("make_interval(0, 0, 0, n)")).groupBy("k").count(),
    ],
)
def test_a_group_that_is_spelled_in_several_ways_is_refused(plan: Any, body: Body) -> None:
    """Spark plans it, and its state store refuses it once it runs."""
    with pytest.raises(fk.DefinitionError) as caught:
        plan(body, key="s")
    assert (caught.value.condition, caught.value.parameters["column"]) == ("KEY_INVALID", "k")


def test_a_group_in_one_spelling_is_planned(plan: Any) -> None:
    assert plan(lambda s: s.groupBy(F.expr("collate(lower(s), 'UTF8_BINARY')").alias("k")).count())


def _keyed(plan: Any, values: list[str], how: str) -> "Region":
    def body(stream: fk.Stream) -> fk.Stream:
        among = F.col("s").isin(values)
        if how == "key":
            return stream.withColumn("k", among)
        return stream.groupBy("s").agg(F.count_if(among).alias("k"))

    region: Region = plan(body, key="s", sink_key="k").regions[0]
    return region


@pytest.mark.parametrize("how", ["keyed step", "key"])
def test_values_of_a_set_are_the_same_in_any_order(plan: Any, how: str) -> None:
    """Python has the strings of a set in another order in each process."""
    before, after = _keyed(plan, ["a", "b, (c", "d"], how), _keyed(plan, ["d", "b, (c", "a"], how)
    assert before.fingerprint == after.fingerprint
    other = _keyed(plan, ["a", "b, (c", "e"], how)
    assert before.fingerprint != other.fingerprint


def test_a_home_of_an_earlier_version_has_them_in_the_order_of_then(plan: Any) -> None:
    region = _keyed(plan, ["d", "a"], "keyed step")
    earlier = {**region.fingerprint, "keyed step": region.fingerprint["keyed step"].replace("'a', 'd'", "'d', 'a'")}
    assert earlier != region.fingerprint
    compare(region, RegionRecord(fingerprint=earlier, start_offsets={}, partitions={}), {})


@pytest.mark.parametrize(
    ("body", "step", "keyed_by", "filters"),
    [
        (lambda s: s.groupBy("s").count(), "count", ("s",), False),
        (lambda s: s.where("n > 1").withColumnRenamed("s", "k").groupBy("k").count(), "count", ("k",), False),
        (lambda s: s.where("n > 1").groupBy("s", F.col("n")).agg(F.count("*").alias("c")), "agg", ("s", "n"), True),
        (lambda s: s.withColumn("n", F.col("n") + 1).groupBy("s", "n").count(), "count", None, False),
        (lambda s: s.groupBy("s", F.upper("s").alias("u")).count(), "count", None, False),
        (lambda s: s.where("n > 1"), "", None, False),
    ],
    ids=["plain", "behind a hop", "several", "replaced", "computed", "none"],
)
def test_the_columns_of_the_log_by_which_a_step_groups_are_known_if_nothing_changes_them(
    plan: Any, body: Body, step: str, keyed_by: tuple[str, ...] | None, filters: bool
) -> None:
    """`falkirk why` looks for the earlier records of a key by these columns."""
    logs = plan(body, key="s").regions[-1].logs()
    assert (logs.keyed_step, logs.keyed_by, logs.filters) == (step, keyed_by, filters)


@pytest.mark.parametrize(
    ("text", "ordered"),
    [
        ("in(s, 'c', 'a, (b', 'b')", "in(s, 'a, (b', 'b', 'c')"),
        ("max(in(lower(s), 'b', 'a'))", "max(in(lower(s), 'a', 'b'))"),
        ("in(substring(s, 1, 2), 3, 1, -2)", "in(substring(s, 1, 2), -2, 1, 3)"),
        (r"in(s, 'it\'s', 'a')", r"in(s, 'a', 'it\'s')"),
        ("in(s, upper(b), 'a')", "in(s, upper(b), 'a')"),
        ("min(b, a)", "min(b, a)"),
    ],
)
def test_only_values_of_a_list_are_put_in_order(text: str, ordered: str) -> None:
    assert with_sorted_lists(text) == ordered
