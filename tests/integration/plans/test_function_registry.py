"""The table of functions against the registry of the installed Spark: a function of a new version fails this test."""

from typing import TYPE_CHECKING, Any

from falkirk.steps.static_analysis.functions import Nature, entry_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The class that a builder makes, if its name is another one.
_MADE = {
    "Contains": "Contains", "CountMinSketchAgg": "CountMinSketchAgg", "CurDate": "CurrentDate", "DatePart": "Extract",
    "LPad": "StringLPad", "RPad": "StringRPad", "MakeTimestampLTZ": "MakeTimestamp",
    "MakeTimestampNTZ": "MakeTimestamp", "ParseToTimestampLTZ": "ParseToTimestamp",
    "ParseToTimestampNTZ": "ParseToTimestamp", "TryMakeTimestampLTZ": "TryMakeTimestamp",
    "TryMakeTimestampNTZ": "TryMakeTimestamp", "TryParseJson": "ParseJson", "TryToDate": "ParseToDate",
    "TryToTime": "ToTime", "TryToTimestamp": "ParseToTimestamp", "TryVariantArrayAppend": "VariantArrayAppend",
    "TryVariantGet": "VariantGet", "TryVariantInsert": "VariantInsert", "TryVariantSet": "VariantSet",
    "ExplodeOuter": "Explode", "InlineOuter": "Inline", "PosExplodeOuter": "PosExplode",
    "VariantExplodeOuter": "VariantExplode",
}  # fmt: skip
#: Functions whose behaviour is not known, and why. They count as non-deterministic.
UNKNOWN = {
    "ApproxTopKEstimate": "a sketch whose format nobody has looked into",
    "Measure": "it stands for an expression of a view of metrics",
    "SchemaOfVariantAgg": "types are widened pair by pair",
    "Collations": "a list that is Spark's own", "SQLKeywords": "a list that is Spark's own",
    "PythonWorkerLogs": "a list that is Spark's own",
}  # fmt: skip
_UNKNOWN_FAMILIES = ("Tuple",)  #: sketches with summaries, new in Spark 4.2


def _classes(registry: Any) -> set[str]:
    listed = registry.listFunction()
    known = [registry.lookupFunction(listed.apply(i)) for i in range(listed.size())]
    classes = {str(info.get().getClassName()).rpartition(".")[2] for info in known if info.isDefined()}
    return classes - {""}  # temporary SQL functions that other tests created in this session


def _made(name: str) -> str:
    stem = name.removesuffix("Builder").removesuffix("Expression").removesuffix("Generator")
    return _MADE.get(stem, stem) if name.endswith("Builder") else name


def test_all_functions_are_in_the_table_or_left_unknown_on_purpose(spark: "SparkSession") -> None:
    state = spark._jsparkSession.sessionState()  # type: ignore[attr-defined]
    every = _classes(state.functionRegistry()) | _classes(state.tableFunctionRegistry())
    assert len(every) > 450
    unknown = {made for made in map(_made, every) if entry_of(made).nature is Nature.UNKNOWN}
    left = {name for name in unknown if name.startswith(_UNKNOWN_FAMILIES)}
    assert unknown - left == UNKNOWN.keys()
    assert left
