"""A list of objects of the JVM is made there in one call."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.calls import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("names", "calls"), [("", 1), ("a", 2), ("abc", 2), ("abcdefghijklmnop", 2)])
def test_a_list_of_columns_takes_one_call(spark: "SparkSession", names: str, calls: int) -> None:
    columns = [F.col(name)._jc for name in names]
    with counted() as made:
        sequence = spark._jvm.PythonUtils.toSeq(columns)
    assert [sequence.apply(i).toString() for i in range(sequence.size())] == [*names]
    assert made.total() == (calls if names else 2), "the list, and the call that has it"


@pytest.mark.parametrize("values", [["a", "b"], ["a", None], [1, 2.5], []])
def test_py4j_makes_all_other_lists(spark: "SparkSession", values: list[Any]) -> None:
    assert [*spark._jvm.java.util.ArrayList(values)] == values


def test_the_list_is_one_that_a_method_may_change(spark: "SparkSession") -> None:
    held = spark._jvm.java.util.ArrayList()
    lists = spark._jvm.java.util.ArrayList([held])
    held.add("late")
    lists.add("more")
    assert [[*lists[0]], lists[1]] == [["late"], "more"]
