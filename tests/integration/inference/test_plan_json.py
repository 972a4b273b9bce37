"""The Java module writes plans as Spark's `toJSON` does, except for fields that no analysis reads."""

from typing import TYPE_CHECKING, Any

import pytest

from falkirk.steps.static_analysis import python, structure
from falkirk.steps.static_analysis.python import _replaced, expressions, replaced
from falkirk.steps.static_analysis.structure import KnownLeaves, by_spark, digest, output_of, plan_tree, structure_of
from tests.integration.corpus_batches import PIPELINES
from tests.integration.inference.test_corpus import planned

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

#: Plans with fields of every kind: options, pairs, lists, products, objects, types, and plans in expressions.
QUERIES = {
    "literals": "SELECT 1, 1L, 1.5D, 1.5BD, 'a\"\\\\\\n\\u0001é😀', X'00ff', NULL, DATE '2026-01-01', true, "
    "TIMESTAMP '2026-01-01 00:00:00', INTERVAL '1' DAY, array(1, 2), map('k', 1), struct(1 AS a), double('NaN')",
    "branches": "SELECT CASE WHEN id = 1 THEN 'one' WHEN id = 2 THEN 'two' END, id IN (1, 2), id LIKE 'a%' FROM rows",
    "lambdas": "SELECT transform(array(id), x -> x + 1), aggregate(array(id), 0L, (a, x) -> a + x) FROM range(3)",
    "joins": "SELECT * FROM range(3) a LEFT JOIN range(4) b USING (id) CROSS JOIN range(2) c",
    "a join with itself": "SELECT a.id FROM rows a JOIN rows b ON a.id = b.id",
    "equal children": "SELECT id + id, coalesce(id, id) FROM rows UNION ALL SELECT id, id FROM rows",
    "subqueries": "SELECT (SELECT max(id) FROM range(9)), id FROM range(3) WHERE EXISTS (SELECT 1 FROM rows)",
    "parts": "WITH a AS (SELECT id FROM range(3)) SELECT * FROM a UNION SELECT id FROM a",
    "a loop": "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 5) SELECT * FROM a",
    "windows": "SELECT sum(id) OVER (PARTITION BY id % 2 ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), "
    "lag(id) OVER (ORDER BY id DESC NULLS LAST) FROM range(3)",
    "groups": "SELECT id % 2, count(DISTINCT id) FILTER (WHERE id > 1), percentile(id, 0.5) FROM range(3) "
    "GROUP BY GROUPING SETS ((id % 2), ()) HAVING count(*) > 0",
    "generators": "SELECT id, x, place FROM range(3) LATERAL VIEW OUTER posexplode(array(id, 2)) made AS place, x",
    "values": "SELECT * FROM VALUES (1, 'a'), (2, NULL) AS t(n, s) ORDER BY n LIMIT 1 OFFSET 1",
    "pivots": "SELECT * FROM (SELECT id, id % 2 AS k FROM range(3)) PIVOT (sum(id) FOR k IN (0, 1))",
    "random": "SELECT rand(), rand(7), uuid(), shuffle(array(1, 2)) FROM range(3)",
    "samples": "SELECT * FROM rows TABLESAMPLE (50 PERCENT) REPEATABLE (3)",
    "a file": "SELECT * FROM file WHERE id > 1",
}


#: Expressions that the Java module finds, with and without replacement.
KINDS = ("Literal", "Cast", "Add", "Alias", "Sum", "AggregateExpression", "Rand")


def without_ignored(value: Any) -> Any:
    """Return JSON without the fields that no analysis reads."""
    if isinstance(value, dict):
        return {key: without_ignored(one) for key, one in value.items() if key not in structure._PASSING}
    return [without_ignored(one) for one in value] if isinstance(value, list) else value


def compare(rows: "DataFrame") -> None:
    written, of_spark = plan_tree(rows), by_spark(rows)
    assert without_ignored(written) == without_ignored(of_spark.tree)  # types have such fields, too
    assert written != of_spark.tree, "the module has left the plan to Spark"
    assert output_of(rows) == of_spark.output
    assert structure._written(rows).leaves == of_spark.leaves
    assert found(rows) == {
        each
        for each in map(told, _replaced(rows.sparkSession, expressions(rows._jdf.queryExecution().analyzed())))
        if each[0] in KINDS
    }


def told(expression: Any) -> tuple[str, str]:
    return str(expression.getClass().getSimpleName()), str(expression.toString())


def found(rows: "DataFrame") -> set[tuple[str, str]]:
    return {told(each) for each in replaced(rows, KINDS)}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_written_as_by_spark(spark: "SparkSession", name: str, tmp_path: "Path") -> None:
    spark.range(3).createOrReplaceTempView("rows")
    if name == "a file":
        spark.range(3).write.parquet(str(tmp_path / "file"))
        spark.read.parquet(str(tmp_path / "file")).createOrReplaceTempView("file")
    compare(spark.sql(QUERIES[name]))


def test_the_longest_plan_of_each_pipeline_is_written_as_by_spark(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in sorted(PIPELINES)[::4]:
        found: list[DataFrame] = []
        with monkeypatch.context() as patch:
            real = structure._written
            patch.setattr(structure, "_written", lambda data, real=real, found=found: found.append(data) or real(data))
            planned(spark, PIPELINES[name])
        if found:
            compare(max(found, key=lambda data: len(str(plan_tree(data)))))


def test_a_session_without_the_module_gives_equal_structures(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> str:
        rows = spark.range(3).selectExpr("id + 1 AS n", "uuid() AS u")
        return digest(structure_of(rows, KnownLeaves.of({})))

    with_module = made()
    monkeypatch.setattr(structure, "_writer", lambda data: None)
    assert made() == with_module


def test_a_session_without_the_module_finds_the_same_parts(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("AGGREGATE", "WINDOW", "PLAN_EXPRESSION", "CURRENT_LIKE")
    texts = (
        "SELECT id, count(*) AS n FROM range(3) GROUP BY id", "SELECT id, now() AS t FROM range(3)",
        "SELECT id, rand() AS x FROM range(3) WHERE id IN (SELECT DISTINCT id FROM range(2))",
        "SELECT sum(id) OVER (ORDER BY id) AS s FROM range(3)", "SELECT id FROM range(3)",
    )  # fmt: skip
    queries = [spark.sql(text) for text in texts]

    def told() -> list[tuple[list[str], list[str]]]:
        kinds = ("Aggregate", "Distinct", "Project")
        return [
            (
                sorted(python.patterns(rows, names)),
                sorted(str(node.nodeName()) for node in python.nodes_of(rows, kinds)),
            )
            for rows in queries
        ]

    with_module = told()
    found = [patterns for patterns, _ in with_module]
    assert found[:2] == [["AGGREGATE"], ["CURRENT_LIKE"]]
    assert found[2:] == [["NON_DETERMINISTIC_PLAN", "PLAN_EXPRESSION"], ["WINDOW"], []]
    assert any("Distinct" in nodes for _, nodes in with_module), "a subquery has it"
    monkeypatch.setattr(python, "JavaClass", type("NoClass", (), {}))
    assert told() == with_module
