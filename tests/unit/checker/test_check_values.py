"""Different values are not equal: numbers, texts, zeros, NaN, nulls, and JSON on which readers disagree."""

import json
import math
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from falkirk.checker import (
    AggregateFunction,
    AggregateModel,
    Guarantee,
    InputRow,
    Max,
    Min,
    NoGaps,
    OutputRow,
    Reading,
    RowPlace,
    Sum,
    Unique,
    Verdict,
    check_keyed,
    check_rules,
    check_stateless,
    decode_json,
)
from falkirk.errors import DefinitionError


def compared(went_in: Any, came_out: Any) -> Guarantee:
    """Return the verdict on an input row whose output is another row."""
    row = InputRow(key=None, place=RowPlace("in", 0, 0), row=went_in)
    return check_stateless([row], [OutputRow(key=None, place=RowPlace("out", 0, 0), values=came_out)]).guarantee


def folded(function: AggregateFunction, values: list[Any]) -> Any:
    """Return the aggregate of the values, in their order."""
    state = None
    for value in values:
        state = function.apply(state, {"x": value})
    return state


SAME = [
    ('{"x": 1}', '{"x": 1.0}'),
    ('{"x": 1.10}', '{"x": 1.1}'),
    ('{"x": 1.0E23}', '{"x": 1e23}'),
    # Older Java writes one digit more than the shortest form of a double.
    ('{"x": 2.0E-3}', '{"x": 0.0020}'),
    ('{"x": 8.409999999999999E21}', '{"x": 8.409999999999999e+21}'),
    ('{"x": 1e999}', '{"x": 10e998}'),
    ('{"x": 1, "y": null}', '{"x": 1}'),
    ('{"x": {"b": 1, "a": 2}}', '{"x": {"a": 2, "b": 1}}'),
    ('{"x": NaN}', '{"x": NaN}'),
]
DIFFERENT = [
    ('{"x": 1e999}', '{"x": 2e999}'),
    ('{"x": 1e-999}', '{"x": 0}'),
    ('{"x": 0.0}', '{"x": -0.0}'),
    ('{"x": 0}', '{"x": -0}'),
    ('{"x": 0.1}', '{"x": 0.10000000000000000001}'),
    ('{"x": 9007199254740993}', '{"x": 9007199254740992.0}'),
    ('{"x": 9007199254740992}', '{"x": 9007199254740993.0}'),
    ('{"x": 1}', '{"x": true}'),
    ('{"x": 1}', '{"x": "1"}'),
    ('{"x": 2, "x": 1}', '{"x": 1}'),
    ('{"s": {"x": 2, "x": 1}}', '{"s": {"x": 1}}'),
    ('{"m": {"a": null}}', '{"m": {}}'),
    ('{"m": [{"a": null}]}', '{"m": [{}]}'),
    ('{"m": {"a": null}}', '{"m": {"b": null}}'),
    ('{"m": {}}', "{}"),
    ('{"x": [1, null]}', '{"x": [1]}'),
    ('{"x": NaN}', '{"x": null}'),
    ("{}", ""),
    ("{}", "null"),
    ("[1]", "[1.0]"),
    ('{"x": 1', '{"x": 1 '),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_means_the_same_is_the_same(one: str, other: str) -> None:
    assert compared(decode_json(one.encode()), decode_json(other.encode())) is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_differs_is_not_the_same(one: str, other: str) -> None:
    for left, right in ((one, other), (other, one)):
        assert compared(decode_json(left.encode()), decode_json(right.encode())) is Guarantee.BROKEN
        assert compared(decode_json(left.encode()), decode_json(left.encode())) is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"x": "a"}', b'\xef\xbb\xbf{"x": "a"}'),
        (b'{"x": "a"}', '{"x": "a"}'.encode("utf-16")),
        (b"\xff", rb"\xff"),
        (None, b"{}"),
        (None, b""),
        (b"(empty)", b""),
        (b"no object", b'{"(not a JSON object)": "no object"}'),
        (b'{"x": "\xed\xa0\x80"}', rb'{"x": "\ud800"}'),
    ],
)
def test_bytes_that_are_not_the_same_are_not_read_as_such(one: bytes | None, other: bytes | None) -> None:
    assert compared(decode_json(one), decode_json(other)) is Guarantee.BROKEN


@pytest.mark.parametrize("text", ["[" * 100_000, '{"x": 1e' + "9" * 30 + "}", '{"x": ' + "9" * 5000 + "}"])
def test_json_that_no_reader_takes_is_a_row_that_nothing_explains(text: str) -> None:
    assert compared(decode_json(text.encode()), decode_json(text.encode())) is Guarantee.EXACTLY_ONCE
    assert compared(decode_json(text.encode()), {}) is Guarantee.BROKEN


def test_decimals_are_compared_as_exactly_as_they_are_given() -> None:
    assert compared({"x": Decimal("1.10")}, {"x": 1.1}) is Guarantee.EXACTLY_ONCE
    assert compared({"x": Decimal("1.10")}, {"x": Decimal("1.1")}) is Guarantee.EXACTLY_ONCE
    assert compared({"x": Decimal("5.00")}, {"x": 5}) is Guarantee.EXACTLY_ONCE
    assert compared({"x": Decimal("NaN")}, {"x": math.nan}) is Guarantee.EXACTLY_ONCE
    assert compared({"x": Decimal("-0.0")}, {"x": 0}) is Guarantee.EXACTLY_ONCE  # a decimal has one zero
    assert compared({"x": Decimal("0.12345678901234567890")}, {"x": 0.12345678901234568}) is Guarantee.BROKEN
    assert compared({"x": Decimal(9007199254740993)}, {"x": 9007199254740992}) is Guarantee.BROKEN


@pytest.mark.parametrize("order", [[1.0, math.nan, 3.0], [math.nan, 1.0, 3.0], [3.0, 1.0, math.nan]])
def test_nan_is_the_greatest_as_in_spark(order: list[float]) -> None:
    assert folded(Min("x"), order) == 1.0
    assert math.isnan(folded(Max("x"), order))
    assert math.isnan(folded(Min("x"), [math.nan, None]))
    assert folded(Min("x"), [math.inf, math.nan]) == math.inf


def test_a_wrong_minimum_beside_nan_is_told() -> None:
    rows = [
        InputRow(key="k", place=RowPlace("in", 0, n), row={"k": "k", "x": x}) for n, x in enumerate([1.0, math.nan])
    ]
    for low, high, guarantee in ((1.0, math.nan, Guarantee.EXACTLY_ONCE), (math.nan, 1.0, Guarantee.BROKEN)):
        values = [{"k": "k", "low": 1.0, "high": 1.0}, {"k": "k", "low": low, "high": high}]
        outputs = [OutputRow(key="k", place=RowPlace("out", 0, n), values=each) for n, each in enumerate(values)]
        model = AggregateModel(["k"], {"low": Min("x"), "high": Max("x")})
        assert check_keyed(rows, outputs, model).guarantee is guarantee


def test_zeros_are_equal_in_an_order_and_the_first_of_them_stays() -> None:
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        for function in (Min("x"), Max("x")):
            assert math.copysign(1, folded(function, [first, second])) == math.copysign(1, first)
    assert math.copysign(1, folded(Sum("x"), [-0.0])) == 1  # Spark adds to 0.0


def test_lists_are_ordered_as_spark_orders_arrays() -> None:
    assert folded(Min("x"), [[1, 2], [1, None], [1]]) == [1]
    assert folded(Max("x"), [[1, 2], [1, None], [1, math.nan]]) == [1, math.nan]
    assert folded(Min("x"), [[1, 2], [1, None]]) == [1, None]


@pytest.mark.parametrize(
    "values", [[1, "a"], ["a", 1], [True, 1], [{"a": 1}, {"a": 2}], [datetime(2024, 1, 1), "2024"], [b"a", "a"]]
)
def test_what_has_no_order_is_refused(values: list[Any]) -> None:
    for function in (Min("x"), Max("x")):
        with pytest.raises(DefinitionError) as refusal:
            folded(function, values)
        assert refusal.value.condition == "NO_ORDER"
        assert refusal.value.parameters["column"] == "x"


def test_a_sum_of_decimals_keeps_all_digits() -> None:
    large = Decimal("12345678901234567890123456789012345678.123456789")
    assert folded(Sum("x"), [large, Decimal("0.000000001")]) == Decimal(
        "12345678901234567890123456789012345678.123456790"
    )
    for values in ([Decimal("1e9999"), Decimal("1e-9999")], [Decimal("1.5"), 1.5], ["1.10", "2"]):
        with pytest.raises(DefinitionError) as refusal:
            folded(Sum("x"), values)
        assert refusal.value.condition == "SUM_OF_NO_NUMBER"


def grouped(key: Any, values: Any, went_in: Any) -> Verdict:
    model = AggregateModel(["k"], {"n": Sum("x")})
    rows = [InputRow(key="g", place=RowPlace("in", 0, 0), row={"k": went_in, "x": 1})]
    return check_keyed(rows, [OutputRow(key=key, place=RowPlace("out", 0, 0), values=values)], model)


def test_the_key_of_a_group_has_one_zero_as_in_spark() -> None:
    assert grouped("g", {"k": 0.0, "n": 1}, -0.0).guarantee is Guarantee.EXACTLY_ONCE
    assert grouped("g", {"k": -0.0, "n": 1}, -0.0).guarantee is Guarantee.BROKEN


CSV = [("1e999", "2e999"), ("12e3", "12000"), ("1.10", "1.1"), ("1.0", "1"), ("-0", "0"), ("00", "0"), ("1_0", "10")]
CSV += [("NaN", "nan"), ("٣", "3"), ("", '""'), ("0.1", "0.10000000000000000001")]
CSV += [("9007199254740993.0", "9.007199254740993E15")]


@pytest.mark.parametrize("decimal", [False, True])
@pytest.mark.parametrize(("one", "other"), CSV)
def test_fields_of_csv_that_are_written_differently_differ(one: str, other: str, decimal: bool, tmp_path: Path) -> None:
    rows = []
    for name, text in (("1.csv", one), ("2.csv", other)):
        (tmp_path / name).write_text(f"id,x\n7,{text}\n")
        [(_, values)] = Reading(decimal=decimal).rows(str(tmp_path / name))
        rows.append(values)
    assert compared(*rows) is Guarantee.BROKEN


@pytest.mark.parametrize("text", ["5", "-5", "0", "1.5", "-0.25", "1e-07", "0.1", "12345678901234567890"])
def test_a_field_of_csv_is_a_number_where_it_is_written_as_the_number_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(f"id,x\n7,{text}\n")
    [(_, values)] = Reading().rows(str(path))
    assert compared({"id": 7, "x": json.loads(text)}, values) is Guarantee.EXACTLY_ONCE


TYPED: list[tuple[str, Any, Any, bool]] = [
    ("double", "1e3", 1000, True),
    ("double", "NaN", math.nan, True),
    ("double", "Infinity", math.inf, True),
    ("double", "1e999", math.inf, True),
    ("double", 9007199254740993, 9007199254740992, True),
    ("double", "1.5", 1.25, False),
    ("double", "-0.0", "0.0", False),
    ("double", "abc", None, False),
    ("decimal", "1.10", "1.1", True),
    ("decimal", "1.10", 1.1, True),
    ("decimal", "0.30000000000000000001", 0.3, False),
    ("decimal", "1e99999999999999999999", "2e99999999999999999999", False),
    ("integer", "007", 7, True),
    ("integer", "7.0", 7, False),
    ("integer", "٣", 3, False),
    ("boolean", "true", True, True),
    ("boolean", "True", True, False),
    ("text", 5, "5", True),
    ("text", True, "true", True),
    ("text", None, "", False),
    ("timestamp", "2024-01-02T03:00:00Z", "2024-01-02T04:00:00.000+01:00", True),
    ("timestamp", "2024-01-02 03:00:00", "2024-01-02T03:00:00", True),
    ("timestamp", "2024-01-02T03:00:00Z", "2024-01-02T03:00:00", False),
    ("timestamp", "2024-01-02T03:00:00.0000001", "2024-01-02T03:00:00", False),
    ("date", "2024-01-02", "2024-01-02", True),
    ("date", "2024-W01-2", "2024-01-02", False),
    ("struct", {"a": None, "b": [{"c": None}]}, {"b": [{}]}, True),
    ("struct", {"a": None}, {"a": 1}, False),
]


@pytest.mark.parametrize(("kind", "one", "other", "same"), TYPED)
def test_a_type_says_what_is_the_same(kind: str, one: Any, other: Any, same: bool, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"x": x}) + "\n" for x in (one, other)))
    (_, left), (_, right) = Reading(types={"x": kind}).rows(str(path))
    assert (compared(left, right) is Guarantee.EXACTLY_ONCE) is same


def test_a_type_of_a_column_leaves_the_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b,c,d\n1.10,1.10,2.5,007\n")
    [(_, values)] = Reading(types={"a": "decimal", "d": "text"}).rows(str(path))
    assert values == {"a": Decimal("1.10"), "b": "1.10", "c": 2.5, "d": "007"}
    with pytest.raises(DefinitionError) as refusal:
        list(Reading(types={"a": "number"}).rows(str(path)))
    assert refusal.value.condition == "TYPE_INVALID"


def test_nothing_in_and_nothing_out_is_no_verdict() -> None:
    verdict = check_keyed([], [], AggregateModel(["k"], {"n": Sum("x")}), rules=[Unique("n")])
    assert verdict.guarantee is Guarantee.UNDECIDED
    assert verdict.consistency.holds is None
    assert not any(map(verdict.satisfies, verdict.holds))
    assert len(verdict.undecided) == verdict.counts.undecided == 1
    assert [rule.holds for rule in verdict.rules] == [False]
    assert check_stateless([], []).guarantee is Guarantee.UNDECIDED


def test_a_rule_about_a_column_that_no_output_has_does_not_hold() -> None:
    outputs = [OutputRow(key=n, place=RowPlace("out", 0, n), values={"id": n}) for n in range(3)]
    named = check_rules(outputs, [Unique("id"), Unique("di"), NoGaps("di")])
    assert [(rule.holds, rule.broken) for rule in named] == [(True, 0), (False, 0), (False, 0)]
    assert [rule.holds for rule in check_rules([], [Unique("id")])] == [False]
