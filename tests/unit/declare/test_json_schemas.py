"""Which rows fit a JSON Schema, as far as Falkirk reads it."""

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from falkirk.steps.sources.written import mismatch

TEXT = {"type": "string"}
NULLABLE = {"oneOf": [{"type": "null"}, TEXT]}


def told(schema: Any, kind: DataType, *, name: str = "a", nullable: bool = True) -> str | None:
    """Return why a row with one column does not fit."""
    return mismatch(json.dumps(schema), StructType([StructField(name, kind, nullable)]))


def of(kind: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": kind}}


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        (StringType(), {"string"}),
        (BinaryType(), {"string"}),
        (DateType(), {"string"}),
        (BooleanType(), {"boolean"}),
        (IntegerType(), {"integer", "number"}),
        (LongType(), {"integer", "number"}),
        (DecimalType(10, 0), {"integer", "number"}),
        (DecimalType(10, 2), {"number"}),
        (DoubleType(), {"number"}),
        (NullType(), {"null"}),
        (StructType(), {"object"}),
        (MapType(StringType(), StringType()), {"object"}),
        (ArrayType(StringType()), {"array"}),
        (VariantType(), {"string", "boolean", "integer", "number", "null", "object", "array"}),
    ],
)
def test_each_type_of_spark_has_its_types_of_json(kind: DataType, types: set[str]) -> None:
    all_types = ("string", "boolean", "integer", "number", "null", "object", "array")
    assert {each for each in all_types if told(of({"type": each}), kind) is None} == types
    assert {each for each in all_types if told(of({"anyOf": [{"type": each}, {"type": "x"}]}), kind) is None} == types
    assert told(of({"type": [*types, "x"]}), kind) is None
    assert told(of({"$ref": "#/definitions/a"}), kind) is None, "a rule that is not read"
    assert told({}, kind) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "the row is object and not array"),
        ({"type": "object", "properties": {"b": TEXT}, "additionalProperties": False}, "a is not in the schema"),
        ({"type": "object", "properties": {"a": False}}, "a is not in the schema"),
        ({"type": "object", "properties": {"A": TEXT}, "additionalProperties": False}, "a is not in the schema"),
        ({"type": "object", "required": ["a", "b"]}, "b is required and missing"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "a is string and not integer"),
        (of({"type": ["integer", "null"]}), "a is string and not integer or null"),
        ({"anyOf": [of({"type": "integer"}), of({"type": "boolean"})]}, "a is string and not integer"),
        ({"anyOf": [of({"type": "integer"}), of(TEXT)]}, None),
        ({"additionalProperties": False, "patternProperties": {"^a$": TEXT}}, None),
        (of(NULLABLE), None),
        (of(TEXT), None),  # a row in which it is null is a dead letter
    ],
)
def test_names_and_types_of_columns_are_compared(schema: Any, reason: str | None) -> None:
    assert told(schema, StringType()) == reason


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (lambda null: ArrayType(StringType(), null), lambda text: {"items": text}),
        (lambda null: MapType(StringType(), StringType(), null), lambda text: {"additionalProperties": text}),
        (lambda null: StructType([StructField("b", StringType(), null)]), lambda text: {"properties": {"b": text}}),
    ],
)
def test_what_is_within_a_column_is_compared_too(kind: Any, schema: Any) -> None:
    """Each row would need a look within its columns, so a null there is refused before the start."""
    assert told(of(schema(TEXT)), kind(False)) is None
    assert told(of(schema(NULLABLE)), kind(True)) is None
    said = told(of(schema(TEXT)), kind(True))
    assert said is not None
    assert said.endswith("may be null in a row and not in the schema")
    said = told(of(schema({"type": "integer"})), kind(False))
    assert said is not None
    assert said.endswith("is string and not integer")
