"""Random statements over the tables `r` and `q`: all clauses of a query, scripts, session variables, and DataFrames."""

import re
from dataclasses import dataclass

from tests.integration.hunting import literals
from tests.integration.hunting.expressions import Pool

#: The separator of the statements of one pipeline.
_THEN = " >> "
#: Statements with holes in brackets. `x`: an expression; `y`: another of the same type; `c`: a condition. `k`, `k2`:
#: keys by which rows are grouped, joined or ordered, each the same in the whole statement. `a`: an aggregate; `g`: a
#: generator; `o`: an order; `v`: a constant; `w`: a constant that is a date, a time or a text. Other holes: one of
#: several words.
_STATEMENTS = """
SELECT id, ⟨x⟩ AS x, ⟨x⟩ AS y FROM r WHERE ⟨c⟩
SELECT id, ⟨x⟩ AS x FROM r WHERE ⟨c⟩ ORDER BY ⟨o⟩
SELECT ⟨k⟩ AS k, ⟨a⟩ AS x, ⟨a⟩ AS y FROM r GROUP BY ⟨⟨k⟩¦1¦ALL¦ROLLUP(⟨k⟩, i)¦CUBE(⟨k⟩)¦GROUPING SETS ((⟨k⟩), ())⟩
SELECT ⟨k⟩ AS k, ⟨a⟩ AS x FROM r WHERE ⟨c⟩ GROUP BY ⟨k⟩ HAVING ⟨⟨a⟩ IS NOT NULL¦count(*) > 1¦max(i) > 1⟩
SELECT ⟨k⟩ AS k, ⟨k2⟩ AS k2, count(*) AS x, ⟨a⟩ AS y FROM r GROUP BY ⟨k⟩, ⟨k2⟩
SELECT DISTINCT ⟨k⟩ AS k, ⟨x⟩ AS x FROM r
SELECT id, ⟨f⟩ OVER (PARTITION BY ⟨k⟩ ORDER BY ⟨o⟩ ⟨frame⟩) AS x FROM r
SELECT id, ⟨f⟩ OVER (ORDER BY ⟨o⟩) AS x, ⟨x⟩ AS y FROM r
SELECT id, ⟨f⟩ OVER (PARTITION BY ⟨k⟩) AS x FROM r
SELECT id, ⟨a⟩ OVER (PARTITION BY ⟨k⟩) AS x FROM r
SELECT id, ⟨row_number()¦rank()¦count(*)⟩ OVER w AS x FROM r WINDOW w AS (PARTITION BY ⟨k⟩ ORDER BY ⟨o⟩)
SELECT id, s FROM r QUALIFY ⟨rank()¦row_number()¦dense_rank()⟩ OVER (PARTITION BY ⟨k⟩ ORDER BY ⟨o⟩) = 1
SELECT ⟨hint⟩r.id, q.id AS other, r.⟨j⟩ AS x FROM r ⟨LEFT ¦RIGHT ¦FULL ¦⟩JOIN q ON r.⟨j⟩ = q.⟨j⟩
SELECT ⟨hint⟩r.id, q.id AS other FROM r ⟨LEFT ¦⟩JOIN q ON r.⟨j⟩ <=> q.⟨j⟩ AND r.id < q.id
SELECT ⟨hint⟩r.id, ⟨j⟩ AS x FROM r ⟨LEFT ¦RIGHT ¦FULL ¦⟩JOIN q USING (⟨j⟩)
SELECT ⟨hint⟩r.id, r.⟨j⟩ AS x FROM r ⟨LEFT SEMI¦LEFT ANTI⟩ JOIN q ON r.⟨j⟩ = q.⟨j⟩
SELECT r.id, q.id AS other FROM r CROSS JOIN q WHERE r.⟨j⟩ = q.⟨j⟩ OR ⟨x⟩ = ⟨y⟩
SELECT ⟨x⟩ AS x FROM r ⟨set⟩ SELECT ⟨y⟩ AS x FROM q
SELECT ⟨x⟩ AS x FROM r ⟨set⟩ SELECT ⟨v⟩ AS x FROM q
SELECT id, ⟨k⟩ AS x FROM r ORDER BY ⟨o⟩ ⟨LIMIT 5¦LIMIT 3 OFFSET 2¦OFFSET 4¦LIMIT ALL¦LIMIT 0⟩
SELECT id, ⟨k⟩ AS x FROM r ORDER BY ⟨o⟩ LIMIT 5
SELECT k, count(*) AS x, max(i) AS y FROM (SELECT ⟨k⟩ AS k, i FROM r ORDER BY ⟨o⟩ LIMIT 7) GROUP BY k
SELECT k, count(*) AS x FROM (SELECT ⟨k⟩ AS k FROM r ⟨SORT BY i¦DISTRIBUTE BY s¦CLUSTER BY s¦LIMIT 100⟩) GROUP BY k
SELECT id FROM r TABLESAMPLE (⟨50 PERCENT¦5 ROWS¦BUCKET 1 OUT OF 2⟩)⟨¦ REPEATABLE (7)⟩
SELECT id, made.* FROM r LATERAL VIEW ⟨¦OUTER ⟩⟨g⟩ made
SELECT id, ⟨g⟩ FROM r
SELECT id, made.* FROM r, LATERAL ⟨g⟩ AS made
SELECT id, x FROM r, LATERAL (SELECT ⟨x⟩ AS x WHERE ⟨c⟩)
SELECT id, x FROM r, LATERAL (SELECT max(q.i) AS x FROM q WHERE q.s = r.s)
SELECT id, x FROM r LEFT JOIN LATERAL explode(⟨a¦ints¦ds¦structs⟩) AS made(x)
SELECT id, (SELECT ⟨a⟩ FROM r) AS x FROM r
SELECT id, (SELECT max(q.⟨i¦l¦d¦e¦ci⟩) FROM q WHERE q.i = r.i) AS x FROM r
SELECT id FROM r WHERE ⟨k⟩ ⟨IN¦NOT IN⟩ (SELECT ⟨k⟩ FROM q)
SELECT id FROM r WHERE ⟨NOT ¦⟩EXISTS (SELECT 1 FROM q WHERE q.i = r.i AND ⟨q.id > r.id¦q.s = r.s⟩)
SELECT id, (SELECT any_value(⟨k⟩) FROM q) AS x FROM r
SELECT id, x FROM r JOIN (SELECT ⟨a⟩ AS x FROM r) ON true
SELECT id, (SELECT ⟨x⟩) AS x FROM r
SELECT * FROM (SELECT s, i, d, m, ci, o FROM r) PIVOT (⟨p⟩ AS x FOR o IN (true, false))
SELECT * FROM (SELECT o, i, d, m, ci, s FROM r) PIVOT (⟨p⟩ AS x FOR s IN ('a' AS p1, 'A' AS p2, 'b' AS p3))
SELECT * FROM (SELECT id, i, l FROM r) UNPIVOT ⟨¦INCLUDE NULLS ⟩(x FOR name IN (i, l))
SELECT * FROM (SELECT id, s, txt FROM r) UNPIVOT (x FOR name IN (s, txt AS other))
WITH w AS (SELECT id, ⟨x⟩ AS x FROM r) SELECT one.id, other.x FROM w one JOIN w other USING (id)
WITH w(k, x) AS (SELECT ⟨k⟩, ⟨a⟩ FROM r GROUP BY 1) SELECT * FROM w
WITH RECURSIVE w(p) AS (SELECT 1 UNION ALL SELECT p + 1 FROM w WHERE p < 5) SELECT id, p FROM r JOIN w ON i = p
WITH w AS (SELECT ⟨k⟩ AS k, ⟨x⟩ AS x FROM r WHERE ⟨c⟩) SELECT k, count(x) AS x FROM w GROUP BY k
SELECT id, x FROM r JOIN VALUES (0, ⟨v⟩), (1, ⟨v⟩) AS v(k, x) ON k = i
SELECT x FROM VALUES (⟨w⟩) AS v(x)
SELECT id, v.id AS x FROM r JOIN range(0, 5, 1, 3) v ON v.id = r.i
SELECT id, x, ⟨x⟩ AS y FROM r, (SELECT ⟨w⟩ AS x)
SELECT id, col AS x FROM r, explode(array(⟨v⟩))
SELECT id FROM r WHERE t > (SELECT max(x) FROM VALUES (⟨w⟩) AS v(x))
SELECT id FROM r WHERE ⟨t¦e¦n⟩ ⟨>¦<¦=¦<>⟩ ⟨w⟩
SELECT id, CASE WHEN ⟨c⟩ THEN ⟨t¦e¦n⟩ ELSE ⟨w⟩ END AS x FROM r
SELECT id, ⟨t¦e¦n⟩ AS x FROM r ⟨UNION¦UNION ALL¦EXCEPT⟩ SELECT id, ⟨w⟩ FROM q
FROM r |> WHERE ⟨c⟩ |> ⟨pipe⟩
FROM r |> ⟨pipe⟩ |> ⟨pipe⟩
BEGIN SELECT ⟨v⟩ AS x; END
BEGIN DECLARE v = ⟨v⟩; SELECT v AS x; END
BEGIN SELECT id, ⟨x⟩ AS x FROM r; END
BEGIN DECLARE v INT = 0; WHILE v < 3 DO SET v = v + 1; END WHILE; SELECT v AS x, ⟨v⟩ AS y; END
BEGIN IF (SELECT count(*) FROM r) > 3 THEN SELECT ⟨v⟩ AS x; ELSE SELECT 1 AS x; END IF; END
BEGIN DECLARE v = (SELECT ⟨a⟩ FROM r); SELECT id, v AS x FROM r; END
DECLARE OR REPLACE VARIABLE falkirk_v = ⟨drawn⟩ >> SELECT id, falkirk_v AS x FROM r
DECLARE OR REPLACE VARIABLE falkirk_v = ⟨drawn⟩ >> SELECT s, max(falkirk_v) AS x FROM r GROUP BY s
DECLARE OR REPLACE VARIABLE falkirk_v = ⟨drawn⟩ >> EXECUTE IMMEDIATE 'SELECT id, ? AS x FROM r' USING falkirk_v
DECLARE OR REPLACE VARIABLE falkirk_v STRING >> SET VAR falkirk_v = (⟨drawn⟩)::string >> SELECT id, falkirk_v FROM r
EXECUTE IMMEDIATE 'SELECT id, s, i + 1 AS x FROM r WHERE i > :p' USING 1 AS p
EXECUTE IMMEDIATE 'SELECT id, uuid() AS x FROM r'
⟨function⟩ >> SELECT id, falkirk_f(s) AS x FROM r
⟨function⟩ >> SELECT transform(a, z -> falkirk_f(z)) AS x FROM r
⟨function⟩ >> SELECT s, max(falkirk_f(s)) AS x FROM r GROUP BY s
CREATE OR REPLACE TEMPORARY VIEW falkirk_w AS SELECT id, ⟨x⟩ AS x FROM r >> SELECT * FROM falkirk_w
CREATE OR REPLACE TEMPORARY VIEW falkirk_w AS SELECT ⟨k⟩ AS k, ⟨a⟩ FROM r GROUP BY 1 >> SELECT * FROM falkirk_w
"""
#: Operations on the DataFrames `r` and `q`, with `F` and `Window`. Holes as in `_WORDS`.
_FRAMES = """
r.dropDuplicates(["⟨col⟩"])
r.select("i", "s").dropDuplicates(["⟨i¦s¦I¦S⟩", "⟨i¦s¦I¦S⟩"])
r.select("⟨col⟩", "⟨col⟩").distinct()
r.groupBy("⟨col⟩").agg(F.⟨agg⟩("⟨col⟩").alias("x"))
r.groupBy("⟨col⟩").⟨sum¦avg¦max¦min⟩("i", "m")
r.groupBy("s").pivot("o").agg(F.⟨agg⟩("⟨col⟩").alias("x"))
r.⟨rollup¦cube⟩("⟨col⟩", "o").agg(F.⟨agg⟩("i").alias("x"))
r.agg(F.⟨agg⟩("⟨col⟩").alias("x"))
r.groupBy(F.window("t", "10 days")).agg(F.⟨agg⟩("⟨col⟩").alias("x"))
r.groupBy(F.session_window("t", "1 days")).count()
r.select("id", F.⟨agg⟩("⟨col⟩").over(Window.partitionBy("⟨col⟩")).alias("x"))
r.select("id", F.⟨rank¦dense_rank¦row_number⟩().over(Window.partitionBy("⟨col⟩").orderBy("⟨col⟩")).alias("x"))
r.select("id", F.row_number().over(Window.partitionBy("⟨col⟩").orderBy("id")).alias("x"))
r.select("id", F.⟨agg⟩("⟨col⟩").over(Window.partitionBy("s").orderBy("id").rowsBetween(-1, 0)).alias("x"))
r.select("id", F.⟨lag¦lead⟩("⟨col⟩").over(Window.partitionBy("s").orderBy("⟨col⟩", "id")).alias("x"))
r.orderBy("⟨col⟩").limit(5).select("⟨col⟩")
r.orderBy("⟨col⟩", "id").limit(5).select("id", "⟨col⟩")
r.limit(⟨5¦100⟩).select("⟨col⟩")
r.select("⟨col⟩").⟨intersectAll¦exceptAll¦subtract¦intersect¦union¦unionAll⟩(q.select("⟨col⟩"))
r.select("id", "s").unionByName(q.select("s", "id"))
r.join(q, "⟨col⟩", "⟨inner¦left¦right¦full¦left_semi¦left_anti⟩").select("⟨col⟩")
r.alias("one").join(q.alias("other"), F.col("one.⟨col⟩") == F.col("other.⟨col⟩")).select("one.id", "other.⟨col⟩")
r.select("id", "⟨col⟩").repartition(3, "⟨col⟩")
r.⟨repartitionByRange(3, "id")¦coalesce(1)¦repartition(5)¦sortWithinPartitions("i")⟩.select("id", "⟨col⟩")
r.⟨sample(0.5, seed=3)¦sample(0.5)¦randomSplit([0.5, 0.5], seed=3)[0]⟩.select("id")
r.select("id", "⟨col⟩").na.⟨fill(0)¦fill("z")¦drop()¦replace("a", "z")⟩
r.select("i", "l").⟨describe()¦summary("mean", "max")¦summary("count", "min")⟩
r.stat.⟨crosstab("s", "o")¦freqItems(["⟨col⟩"])¦sampleBy("s", {"a": 0.5}, 3)⟩
r.select("id", "i", "l").unpivot("id", ["i", "l"], "name", "x")
r.select("⟨col⟩").localCheckpoint().distinct()
r.groupBy("s").agg(F.⟨agg⟩("⟨col⟩").alias("x")).localCheckpoint().select("x")
r.select("id", F.⟨rand¦randn¦uuid¦monotonically_increasing_id¦spark_partition_id⟩().alias("x")).localCheckpoint()
r.observe("seen", F.count(F.lit(1))).select("id")
r.select("id", F.when(F.col("o"), F.col("⟨col⟩")).otherwise(F.lit(None)).alias("x"))
r.select("id", F.col("⟨col⟩").isin(⟨1, 2, 3¦"a", "b"¦"today"⟩).alias("x"))
r.offset(3).select("id")
r.withColumn("x", F.⟨explode¦explode_outer¦posexplode⟩("⟨array⟩")).select("id")
r.select("id", F.transform("⟨array⟩", lambda x: F.struct(x)).alias("x"))
r.select("id", F.⟨array_sort¦array_distinct¦array_max¦shuffle¦flatten¦reverse⟩("⟨array⟩").alias("x"))
r.groupBy("s").agg(F.⟨sort_array¦size¦array_distinct¦array_max⟩(F.⟨collect_list¦collect_set⟩("⟨col⟩")).alias("x"))
r.groupBy("⟨col⟩").agg(F.⟨max¦min¦max_by¦first⟩(F.struct("⟨col⟩", "id")).alias("x"))
r.groupBy("⟨col⟩").agg(F.⟨max_by¦min_by⟩("⟨col⟩", F.struct("⟨col⟩", "id")).alias("x"))
r.withWatermark("t", "1 hour").groupBy(F.window("t", "1 day")).count()
r.crossJoin(q.select(F.⟨agg⟩("i").alias("top"))).select("id", "top")
r.where(F.col("i") > r.agg(F.max("i") - 1).scalar()).select("id")
r.sparkSession.sql("SELECT id, :x AS x FROM r", {"x": ⟨1¦"now"¦"a"⟩})
r.sparkSession.sql("SELECT CAST(⟨:x¦concat(:x, '')⟩ AS ⟨TIMESTAMP¦DATE⟩) AS x", {"x": ⟨"now"¦"2020-01-01"⟩})
r.sparkSession.range(0, 10, 1, 3).select(F.⟨agg⟩("id").alias("x"))
r.select("id", F.lit("⟨now¦today¦2020-01-01⟩").⟨cast¦try_cast⟩("⟨timestamp¦date⟩").alias("x"))
r.select("id", F.⟨to_date¦to_timestamp⟩(F.⟨reverse¦lower¦trim⟩(F.lit("⟨today¦yadot¦2020-01-01⟩"))).alias("x"))
r.where(F.col("⟨t¦e¦n⟩") ⟨>¦<¦==⟩ F.lit("⟨today¦2024-03-31⟩")).select("id")
r.select("id", F.col("⟨t¦e¦n⟩").between("⟨today¦2020-01-01⟩", "tomorrow").alias("x"))
r.select("id", F.⟨coalesce¦greatest¦nvl⟩("e", F.lit("⟨today¦2020-01-01⟩")).alias("x"))
r.sparkSession.createDataFrame([(1, "a")], "i INT, k STRING").join(r, "i").select("id", "k")
r.select("id").join(r.groupBy("i").count(), F.lit(True)).select("id", "count")
r.select(F.⟨approx_count_distinct¦count_distinct¦percentile_approx⟩("⟨col⟩"⟨¦, F.lit(0.5)⟩).alias("x"))
r.select("s", "o").transpose()
r.selectExpr("id", "stack(2, ⟨col⟩, ⟨col⟩) AS x")
"""
STATEMENTS = _STATEMENTS.strip().splitlines()
FRAMES = _FRAMES.strip().splitlines()
_WORDS = {
    "col": "id¦i¦l¦d¦s¦txt¦y¦f¦m¦w¦ci¦ai¦b¦o¦e¦t¦n¦dt¦st¦a¦ints¦ds",
    "array": "a¦ints¦ds¦structs¦aa", "set": "UNION¦UNION ALL¦INTERSECT¦EXCEPT¦EXCEPT ALL¦MINUS",
    "agg": "sum¦avg¦max¦min¦count¦first¦last¦collect_list¦collect_set¦median¦mode¦any_value¦stddev¦count_distinct¦"
    "sum_distinct¦approx_count_distinct¦bit_xor¦try_sum¦listagg¦skewness¦product",
    "hint": "¦¦¦/*+ BROADCAST(q) */ ¦/*+ MERGE(q) */ ¦/*+ SHUFFLE_HASH(q) */ ¦/*+ REPARTITION(3) */ ",
    "p": "max(i)¦sum(i)¦count(*)¦max(d)¦first(i)¦min(ci)¦sum(m)¦⟨a⟩",
    "f": "⟨a⟩¦row_number()¦rank()¦dense_rank()¦ntile(2)¦cume_dist()¦percent_rank()¦lead(⟨x⟩)¦lag(⟨x⟩) IGNORE NULLS¦"
    "nth_value(⟨x⟩, 2)¦first(⟨x⟩)¦count(*)¦sum(i)¦max(⟨x⟩)¦last_value(⟨x⟩)",
    "frame": "¦¦ROWS BETWEEN 1 PRECEDING AND CURRENT ROW¦RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW¦"
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING¦RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "o": "⟨k2⟩, id¦⟨k2⟩¦⟨k2⟩ DESC¦⟨k2⟩ NULLS LAST¦⟨k2⟩ DESC, s¦⟨x⟩¦id",
    "pipe": "WHERE ⟨c⟩¦EXTEND ⟨x⟩ AS x¦SET i = i + 1¦DROP d¦AGGREGATE ⟨a⟩ AS x GROUP BY s AS s¦ORDER BY id LIMIT 5¦"
    "SELECT id, s, i, ⟨x⟩ AS x¦JOIN q USING (id)¦UNION ALL SELECT * FROM q¦LIMIT 3",
    "drawn": "⟨v⟩¦⟨w⟩¦uuid()¦rand()¦current_timestamp()¦(SELECT ⟨a⟩ FROM r)¦1 + 1",
    "function": "CREATE OR REPLACE TEMPORARY FUNCTION falkirk_f(p STRING) RETURNS STRING RETURN ⟨body⟩",
    "body": "upper(p)¦p || uuid()¦(⟨w⟩)::string || p¦concat(p, p)¦p || now()::string¦(SELECT max(s) FROM r)",
}  # fmt: skip
_HOLE = re.compile("⟨([^⟨⟩]*)⟩")


@dataclass(kw_only=True)
class Draw:
    """Generates random statements.

    Args: pool: expressions of one row. aggregates: expressions of many rows. generators: expressions that make several
        rows.
    """

    pool: Pool
    aggregates: list[str]
    generators: list[str]

    def statements(self) -> tuple[str, ...]:
        """Return statements. The last one gives rows."""
        return tuple(self._filled(self.pool.drawn.choice(STATEMENTS)).split(_THEN))

    def frame(self) -> str:
        """Return an operation on DataFrames, as Python code."""
        return self._filled(self.pool.drawn.choice(FRAMES))

    def _filled(self, form: str) -> str:
        """Return a form with its holes filled, from the inside out."""
        last: dict[str, str] = {}

        def fill(hole: re.Match[str]) -> str:
            what = hole[1]
            if "¦" in what:
                return self.pool.drawn.choice(what.split("¦"))
            if what in _WORDS:
                return f"⟨{_WORDS[what]}⟩" if "¦" in _WORDS[what] else _WORDS[what]
            if what in ("k", "k2", "j"):
                return last.setdefault(what, self._one(what, last))
            return self._one(what, last)

        while _HOLE.search(form):
            form = _HOLE.sub(fill, form)
        return form

    def _one(self, what: str, last: dict[str, str]) -> str:
        drawn, pool = self.pool.drawn, self.pool
        match what:
            case "x":
                found, last["kind"] = pool.any()
                return found
            case "y":
                return pool.one(last.get("kind", "string"))
            case "c":
                return pool.one("boolean")
            case "a":
                return drawn.choice(self.aggregates)
            case "g":
                return drawn.choice(self.generators)
            case "j":
                return drawn.choice(("i", "s", "d", "ci", "l", "st", "a"))
            case "v":
                return literals.of_kind(drawn, drawn.choice(("date", "timestamp", "string", "int", "double"))) or "1"
            case "w":
                return literals.of_kind(drawn, drawn.choice(("date", "timestamp", "timestamp_ntz", "string"))) or "1"
            case _:
                key = drawn.choice(("i", "s", "o", "l", "d", "ci", "e", "m", "id", "st", "a", "t"))
                return key if drawn.random() < 0.8 else pool.any()[0]
