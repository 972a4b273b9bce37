"""The alert rules, the dashboard and the docs name metrics that exist, and the docs name all."""

import json
import re
from pathlib import Path

import pytest

from falkirk.runtime.supervision.metrics import FAMILIES
from tests.unit.metrics.statuses import full, metrics_of, samples

ROOT = Path(__file__).parents[3]
RULES, DASHBOARD = ROOT / "deploy/prometheus/falkirk.rules.yml", ROOT / "deploy/grafana/falkirk.json"
SAMPLES = {name for name, _ in samples(metrics_of(full()))}
LABELS = {name: {label for label, _ in labels} for name, labels in samples(metrics_of(full()))}
_NAMED = re.compile(r"\bfalkirk_[a-z_]+\b")


def expressions() -> dict[str, list[str]]:
    """Return the expressions of each file."""
    rules = re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.MULTILINE)
    content = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in content["panels"] for target in panel["targets"]]
    variables = [v["query"]["query"] for v in content["templating"]["list"] if v["type"] == "query"]
    return {"rules": rules, "dashboard": [*panels, *variables]}


@pytest.mark.parametrize("where", ["rules", "dashboard"])
def test_expressions_name_samples_that_exist(where: str) -> None:
    found = expressions()[where]
    assert len(found) >= 12
    for expression in found:
        named = set(_NAMED.findall(expression))
        assert named or expression.startswith("up{")
        assert named <= SAMPLES, expression


@pytest.mark.parametrize("where", ["rules", "dashboard"])
def test_expressions_name_labels_that_exist(where: str) -> None:
    known = {label for labels in LABELS.values() for label in labels} | {"job", "instance", "le"}
    for expression in expressions()[where]:
        grouped = [name for text in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for name in text.split(", ")]
        matched = re.findall(r"[{,]\s*(\w+)\s*(?:=|!)", expression)
        assert {*grouped, *matched} <= known, expression


def test_each_metric_is_in_the_dashboard() -> None:
    named = {name for expression in expressions()["dashboard"] for name in _NAMED.findall(expression)}
    bases = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in named}
    assert {*FAMILIES} <= bases | named


def test_operations_has_a_row_for_each_metric() -> None:
    page = (ROOT / "docs" / "operations.md").read_text().partition("\n## Metrics")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(falkirk_\w+)` \| ([^|]*)\|", page, re.MULTILINE))
    expected = {f"{n}_total" if kind == "counter" else n: labels for n, (kind, labels, _) in FAMILIES.items()}
    assert rows.keys() == expected.keys()
    for name, labels in expected.items():
        assert re.findall(r"`(\w+)`", rows[name]) == [*labels], name


def test_names_follow_the_rules_of_prometheus() -> None:
    for name, (kind, labels, text) in FAMILIES.items():
        assert re.fullmatch(r"falkirk_[a-z]+(_[a-z]+)*", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert kind in {"counter", "gauge", "histogram"}
        assert len(labels) <= 2
        assert text.endswith(".")
