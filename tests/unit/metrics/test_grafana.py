"""The dashboard for Grafana has the form that Grafana reads, and a wrong key is found."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.metrics.grafana import faults
from tests.unit.metrics.statuses import full, metrics_of, samples

DASHBOARD = Path(__file__).parents[3] / "deploy/grafana/falkirk.json"
CONTENT = json.loads(DASHBOARD.read_text())
LABELS = {name: {label for label, _ in labels} for name, labels in samples(metrics_of(full()))}


def renamed(old: str, new: str) -> Callable[[Any], None]:
    """Return a function that gives a key another name wherever it is."""

    def rename(part: Any) -> None:
        for inner in part if isinstance(part, list) else part.values() if isinstance(part, dict) else ():
            rename(inner)
        if isinstance(part, dict) and old in part:
            part[new] = part.pop(old)

    return rename


def set_to(value: object, *path: Any) -> Callable[[Any], None]:
    """Return a function that sets the value at a path."""

    def set_it(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = value

    return set_it


def test_grafana_reads_all_of_it() -> None:
    assert faults(CONTENT) == []
    assert CONTENT["schemaVersion"] == 39, "Grafana 11 has this version; later ones convert it"


@pytest.mark.parametrize(
    "plant",
    [
        *(renamed(key, f"{key}s") for key in (
            "panels", "targets", "expr", "refId", "gridPos", "fieldConfig", "defaults", "unit", "legendFormat",
            "templating", "query", "includeAll", "multi", "uid", "schemaVersion", "mappings", "text",
        )),
        set_to("timeserie", "panels", 1, "type"),
        set_to("seconds", "panels", 1, "fieldConfig", "defaults", "unit"),
        set_to("1", "panels", 1, "id"),
        set_to(1, "panels", 1, "id"),
        set_to("${source}", "panels", 1, "datasource", "uid"),
        set_to("loki", "panels", 1, "targets", 0, "datasource", "type"),
        set_to('falkirk_info{instance=~"$instanse"}', "panels", 1, "targets", 0, "expr"),
        set_to("B", "panels", 1, "targets", 0, "refId"),
        set_to([], "panels", 1, "targets"),
        set_to(7, "panels", 2, "gridPos", "x"),
        set_to(13, "panels", 2, "gridPos", "w"),
        set_to({}, "templating", "list"),
        set_to("on load", "templating", "list", 1, "refresh"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(plant: Callable[[Any], None]) -> None:
    content = copy.deepcopy(CONTENT)
    plant(content)
    assert content != CONTENT
    assert faults(content)


def test_legends_name_labels_that_their_series_have() -> None:
    """Grafana shows an unknown label as nothing, so all lines would have the same name."""
    for target in (target for panel in CONTENT["panels"] for target in panel["targets"]):
        expression = target["expr"]
        grouped = re.search(r"\bby \(([^)]*)\)", expression)
        (metric,) = set(re.findall(r"\bfalkirk_[a-z_]+\b", expression))
        there = {*grouped[1].split(", ")} if grouped else LABELS[metric] | {"instance", "job"}
        assert {*re.findall(r"{{(\w+)}}", target["legendFormat"])} <= there, expression
