"""The rows that random pipelines read: two tables that can be joined, with a column of each type. The values are few.
Many are equal but have several spellings, and some are large, null or NaN."""

import random
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.integration.hunting import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 24
#: The tables.
TABLES = ("r", "q")

_WORDS = ("'a'", "'A'", "'b'", "'B'", "'ab'", "'x y'", "''", "'ä'", "'äi'", "NULL")
_DOUBLES = ("0D", "-0D", "1.5D", "0.1D", "1e16D", "-1e16D", "DOUBLE('NaN')", "DOUBLE('Infinity')", "3D", "NULL")
_LONGS = ("0", "1", "2", "-1", "4611686018427387904", "-4611686018427387904", "9223372036854775807", "NULL")
#: There is no time of day, because Spark adds today's date to one in a column, and no plan shows it
#: (docs/determinism.md).
_TEXTS = (
    "'2024-02-29'",
    "'17'",
    "'1.50'",
    "'2024-03-31 01:30:00'",
    "'now'",
    "'today'",
    "'a,b'",
    "'a=1&b'",
)
_JSON = ('\'{"a": 1, "b": [1, 2]}\'', '\'{"a": 1, "a": 2}\'', "'[1.0, 1.00]'", "'\"x\"'", "'{\"b\": null}'")
_MAKES = """
id, i, l, d, s, txt, js,
CAST(i AS TINYINT) AS y, CAST(i AS SMALLINT) AS h, CAST(d AS FLOAT) AS f, CAST(i AS DECIMAL(10, 2)) / 4 AS m,
CAST(l AS DECIMAL(38, 8)) AS w, collate(s, 'UTF8_LCASE') AS ci, collate(s, 'UNICODE_CI_AI') AS ai,
CAST(s AS BINARY) AS b,
i % 2 = 0 AS o, date_add(DATE'2024-02-27', i) AS e,
TIMESTAMP'2024-03-30 23:59:59.123456Z' + make_dt_interval(0, i * 7, 0, i) AS t,
TIMESTAMP_NTZ'2024-03-30 23:59:59.5' + make_dt_interval(0, i * 5) AS n,
TIME'10:11:12.5' + make_dt_interval(0, i) AS z, make_dt_interval(i, 1, 2, i) AS dt, make_ym_interval(1, i) AS ym,
make_interval(0, i, 0, i) AS iv,
array(s, txt) AS a, array(i, i - 1, NULL) AS ints, array(d, 0D, 1.5D) AS ds, array(array(i), array(i, 2)) AS aa,
array(named_struct('k', s, 'x', d), named_struct('k', txt, 'x', 1D)) AS structs, array(e, NULL) AS es,
map(concat('k', coalesce(i, 0) % 3), i, 'x', 2) AS g, map('p', d) AS gd, map(coalesce(i, 9), s) AS gs,
named_struct('k', s, 'x', d, 'n', i) AS st, try_parse_json(js) AS v,
to_variant_object(named_struct('k', s, 'x', d)) AS vs
"""
_COLUMNS = "id, i, l, d, s, txt, js"


def made(session: "SparkSession", seed: int, order: int) -> dict[str, "DataFrame"]:
    """Return the tables.

    Args: order: 0: the rows in order and in one part. Other numbers: the same rows in another order, in several parts.
    """
    tables = {}
    for name in TABLES:
        parts = _parts(_rows(random.Random(f"{name} {seed}")), order)
        several = [session.sql(f"SELECT * FROM VALUES {', '.join(part)} AS given({_COLUMNS})") for part in parts]
        together = reduce(lambda one, other: one.union(other), (rows.coalesce(1) for rows in several))
        made = together.selectExpr(*_split(_MAKES)).localCheckpoint()
        tables[name] = jvm.shared(made, session)
    return tables


def _rows(drawn: random.Random) -> list[str]:
    return [
        f"({i}, {drawn.choice(['0', '1', '2', '3', '5', '-7', 'NULL'])}, {drawn.choice(_LONGS)}L, "
        f"{drawn.choice(_DOUBLES)}, {drawn.choice(_WORDS)}, {drawn.choice(_TEXTS)}, {drawn.choice(_JSON)})"
        .replace("NULLL", "NULL")
        for i in range(ROWS)
    ]  # fmt: skip


def _parts(rows: list[str], order: int) -> Sequence[list[str]]:
    if not order:
        return [rows]
    drawn = random.Random(order)
    shuffled = drawn.sample(rows, len(rows))
    cuts = [0, *sorted(drawn.sample(range(1, len(rows)), 2)), len(rows)]
    return [shuffled[begin:end] for begin, end in pairwise(cuts)]


def _split(columns: str) -> list[str]:
    """Divide a list of expressions at the commas outside parentheses and quotes."""
    found, depth, quoted = [""], 0, False
    for letter in columns.replace("\n", " "):
        quoted ^= letter == "'"
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == "," and depth == 0 and not quoted:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]
