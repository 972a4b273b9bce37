"""Marks of rows that a step makes bad: their letters say whether `falkirk redrive` may send their records again."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from falkirk.steps.dataframes.names import BAD, STAMP
from falkirk.steps.live import effects, stamped
from falkirk.steps.live.event_time import LATE, bad
from falkirk.steps.live.stamped import Frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED = "the function failed: ValueError: no"
_BAD = "struct<reason: string, key: binary, value: binary>"


def test_a_letter_says_whether_its_record_has_had_another_effect(spark: "SparkSession") -> None:
    """Source 1 is a log between two regions: its records come from a region that has had an effect."""
    rows: list[tuple[int, bool | None, str]] = [
        (source, alone, reason) for source in (0, 1) for alone in (True, False, None) for reason in (FAILED, LATE)
    ]
    data = spark.createDataFrame(rows, "source INT, alone BOOLEAN, reason STRING").select(
        "alone", "reason", "source", F.struct("source", F.lit(0).alias("partition")).alias(STAMP),
        F.when(F.col("alone").isNull(), F.struct("reason", F.lit(b"k").alias("key"), F.lit(b"{}").alias("value")))
        .cast(_BAD).alias(BAD),
    )  # fmt: skip
    is_made = F.col("alone").isNotNull()
    made = data.withColumn(BAD, bad(data, is_made, F.col("reason"), ["source"], is_alone=F.col("alone")))
    kinds = (effects.SAFE, effects.ONCE_COVERED, effects.MAY_CHANGE)
    told = [
        effects.resend(F.col(f"{BAD}.reason"), inside=inside, of_function=kind).alias(f"{kind}{len(inside)}")
        for kind in kinds for inside in ((), (1,))
    ]  # fmt: skip
    letters = made.select("source", "alone", "reason", effects.key_of_letter().alias("letter_key"), *told).collect()

    def expected(row: Any, kind: str, *, inside: bool) -> str | None:
        if row.alone is None:
            return None
        if not row.alone or (inside and row.source == 1):
            return "had_effect"
        return kind if row.reason == FAILED else "safe"

    assert len(letters) == len(rows)
    for row in letters:
        assert row.letter_key == (b"k" if row.alone is None else None), "only a raw record has a key"
        found = {(kind, inside): row[f"{kind}{int(inside)}"] for kind in kinds for inside in (False, True)}
        assert found == {(kind, inside): expected(row, kind, inside=inside) for kind, inside in found}, row


def test_steps_with_several_rows_or_a_state_end_the_time_before_any_effect(spark: "SparkSession") -> None:
    data = spark.sql(
        "SELECT 'a' AS id, array(1, 2) AS parts, struct(0 AS source, 0 AS partition, 0L AS offset) AS "
        f"{STAMP}, CAST(NULL AS {_BAD}) AS {BAD}"
    )
    frame = Frame(data=data)
    operations = stamped._OPERATIONS
    assert frame.is_alone
    assert operations["where"](operations["select"](frame, "id", "parts"), "id = 'a'").is_alone
    assert not operations["explode"](frame, "parts", "part").is_alone
    counted = operations["count"](frame, ["id"])
    assert not counted.is_alone
    assert not operations["selectExpr"](counted, "id").is_alone
