"""Rules over a key's outputs: a violation is shown with the outputs that prove it, and rules need no model."""

import json
from typing import Any

import pytest

from falkirk.checker import (
    AggregateModel,
    Count,
    Increasing,
    InputRow,
    Kind,
    NoGaps,
    OutputRow,
    RowPlace,
    Rule,
    RuleVerdict,
    Space,
    Transitions,
    Unique,
    check_keyed,
    check_rules,
    rules_to_json,
)
from falkirk.errors import DefinitionError


def outputs(*rows: tuple[str, Any], column: str = "v", partition: int = 0) -> list[OutputRow]:
    return [
        OutputRow(key=key, place=RowPlace("out", partition, offset), values={column: value})
        for offset, (key, value) in enumerate(rows)
    ]


def judged(rule: Rule, *rows: tuple[str, Any]) -> RuleVerdict:
    [verdict] = check_rules(outputs(*rows), [rule])
    return verdict


def offsets(verdict: RuleVerdict) -> list[list[int]]:
    return [[place.offset for place in anomaly.outputs] for anomaly in verdict.anomalies]


@pytest.mark.parametrize(
    ("rule", "good", "bad", "proof"),
    [
        (Increasing("v"), [1, 3, 7.5], [1, 3, 3, 4], [[1, 2]]),
        (Increasing("v"), [-1, 0], [1, None], [[0, 1]]),
        (NoGaps("v"), [4, 5, 6], [1, 2, 4, 5], [[1, 2]]),
        (NoGaps("v", first=1), [1, 2], [2, 3], [[0]]),
        (Unique("v"), [1, "1", True], [1, 2, 1.0, 2], [[0, 2], [1, 3]]),
        (Transitions.of("v:new>paid,paid>sent"), ["paid", "sent"], ["new", "sent"], [[0, 1]]),
        (Transitions.of("v:>new,new>paid"), ["new", "paid"], ["paid", "new"], [[0], [0, 1]]),
        (Transitions.of("v:true>false"), [True, False], [False, True], [[0, 1]]),
    ],
    ids=lambda each: each.name if not isinstance(each, list) else "",
)
def test_a_rule_holds_or_is_broken_with_proof(rule: Rule, good: list[Any], bad: list[Any], proof: Any) -> None:
    assert judged(rule, *(("k", value) for value in good)).broken == 0
    verdict = judged(rule, *(("k", value) for value in bad))
    assert offsets(verdict) == proof
    assert verdict.broken == len(proof)
    assert {anomaly.kind for anomaly in verdict.anomalies} == {Kind.RULE}
    assert all(rule.name in anomaly.explanation for anomaly in verdict.anomalies)


def test_a_rule_is_about_one_key_at_a_time() -> None:
    assert judged(NoGaps("v"), ("a", 1), ("b", 7), ("a", 2), ("b", 8)).broken == 0
    verdict = judged(NoGaps("v"), ("a", 1), ("b", 7), ("a", 3), ("b", 8))
    assert offsets(verdict) == [[0, 2]]
    assert verdict.anomalies[0].key == "a"


def test_nothing_orders_two_partitions() -> None:
    found = outputs(("k", 5)) + outputs(("k", 1), partition=1)
    order, again = check_rules(found, [Increasing("v"), Unique("v")])
    assert order.broken == again.broken == 0
    found = outputs(("k", 5)) + outputs(("k", 5), partition=1)
    assert check_rules(found, [Unique("v")])[0].broken == 1


def test_all_breaks_are_counted_and_the_first_are_shown_whatever_the_parts() -> None:
    rows = outputs(*[(f"k{n % 50}", 0) for n in range(1000)])
    for space in (None, Space(memory_bytes=1 << 12, parts=3)):
        [verdict] = check_rules(rows, [Increasing("v")], anomalies_shown=3, space=space)
        assert verdict.broken == 950
        assert offsets(verdict) == [[0, 50], [1, 51], [2, 52]]


def test_rules_stand_beside_the_guarantee() -> None:
    rows = [InputRow(key="k", place=RowPlace("in", 0, n), row={"k": "k"}) for n in range(3)]
    found = [OutputRow(key="k", place=RowPlace("out", 0, n), values={"k": "k", "v": n + 1}) for n in range(3)]
    model = AggregateModel(["k"], {"v": Count()})
    verdict = check_keyed(rows, found, model, rules=[NoGaps("v"), Transitions.of("v:1>2")])
    assert verdict.guarantee == "exactly-once"
    assert [rule.broken for rule in verdict.rules] == [0, 1]
    json.dumps(rules_to_json(verdict.rules))


@pytest.mark.parametrize("text", ["state", "state:", "state:a", ":a>b", "state:a>b>c", "state:a>"])
def test_what_describes_no_transitions_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        Transitions.of(text)
    assert refusal.value.condition == "RULE_INVALID"
    assert refusal.value.parameters["rule"] == text
