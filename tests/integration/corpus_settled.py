"""Corpus of batches with operations that depend on the order of rows, where the order is fixed or makes no difference,
and beside each a similar batch where the order makes a difference."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.integration.corpus import EPOCH, Body, batch

_ALL_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_IN_ORDER = "PARTITION BY s ORDER BY n"
#: Equal, and written in two ways.
_ZERO = "CAST(n - n AS DOUBLE) * if(n > 2, 1D, -1D)"


def _over(column: str, window: str) -> Body:
    """Return a column over a window."""
    return lambda events: events.select("t", F.expr(f"{column} OVER ({window})").alias("x"))


def _gathered(text: str) -> Body:
    """Return an aggregate of each key."""
    return lambda events: events.withColumn("z", F.expr(_ZERO)).groupBy("s").agg(F.expr(text).alias("x"))


def _first(by: tuple[str, ...], columns: tuple[str, ...] = ("s", "n"), *, counted: bool = False) -> Body:
    """Return the first of some rows in an order."""

    def first(events: DataFrame) -> DataFrame:
        rows = events.withColumn("z", F.expr(_ZERO)).select(*columns)
        return (rows.groupBy("s").count() if counted else rows).orderBy(*by).limit(2)

    return first


def _of_sql(body: str) -> Body:
    """Return the result of a SQL function on keys."""

    def called(events: DataFrame) -> DataFrame:
        made = f"CREATE OR REPLACE TEMPORARY FUNCTION falkirk_corpus(p STRING) RETURNS STRING RETURN {body}"
        events.sparkSession.sql(made)
        return events.selectExpr("falkirk_corpus(s) AS s", "n")

    return called


SAME: dict[str, Body] = {
    "ranked": _over("rank()", _IN_ORDER),
    "ranked in part": _over("percent_rank()", _IN_ORDER),
    "counted in a partition": _over("count(*)", "PARTITION BY s"),
    "summed in a partition": _over("sum(n)", f"{_IN_ORDER} {_ALL_ROWS}"),
    "summed up to its equals": _over("sum(n)", _IN_ORDER),
    "numbered by a key of its own": lambda events: events.groupBy("s", "n").count().selectExpr(
        "s", "n", f"row_number() OVER ({_IN_ORDER}) AS i", f"lag(n) OVER ({_IN_ORDER}) AS before",
        f"collect_list(n) OVER ({_IN_ORDER}) AS upto",
    ),
    "the first by a key of its own": _first(("s",), counted=True),
    "the first by all columns": _first(("s", "n")),
    "how many different ones": _gathered("size(collect_set(n))"),
    "a list that is sorted": _gathered("sort_array(collect_list(n), false)"),
    "a list that is sorted as usual": _gathered("array_sort(collect_list(n))"),
    "a set that is sorted": _gathered("sort_array(collect_set(n))"),
    "the one with the greatest of itself": _gathered("max_by(n, struct(n % 3, n))"),
    "a function of SQL": _of_sql("upper(p)"),
}  # fmt: skip
DIFFER: dict[str, Body] = {
    "numbered by what others share": _over("row_number()", _IN_ORDER),
    "counted up to its row": _over("sum(n % 2)", "PARTITION BY s ORDER BY s ROWS 1 PRECEDING"),
    "greatest of zeros in a partition": _over(f"max({_ZERO})", "PARTITION BY s"),
    "ranked beside a number": lambda events: events.selectExpr(
        "t", f"rank() OVER ({_IN_ORDER}) AS x", "row_number() OVER (PARTITION BY s ORDER BY s) AS y"
    ),
    "the first by what others share": _first(("s",)),
    "the first by a number that others share": lambda events: events.groupBy("s", "n").count().orderBy("s").limit(2),
    "the first by all columns, of zeros": _first(("s", "z"), ("s", "z")),
    "a list of zeros that is sorted": _gathered("sort_array(collect_list(z))"),
    "a list that is sorted by nothing": _gathered("array_sort(collect_list(n), (x, y) -> 0)"),
    "a list that is sorted, beside one that is not": _gathered("struct(sort_array(collect_list(n)), collect_list(n))"),
    "the one with the greatest of another": _gathered("max_by(n, struct(n % 3, s))"),
}  # fmt: skip
SETTLED = {name: batch(EPOCH, body) for name, body in SAME.items()} | {
    name: batch(EPOCH, body, same=False, ordered=True) for name, body in DIFFER.items()
} | {
    "a function of SQL that draws": batch(EPOCH, _of_sql("p || uuid()"), same=False),
}  # fmt: skip
