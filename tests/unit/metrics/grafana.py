"""The form of a dashboard, as Grafana 11.6 and 12.0 declare it (npm `@grafana/schema`, dashboard_types.gen.d.ts).

Only the parts that our dashboard uses are here. Grafana ignores a key that it does not know, so a wrong key would show
as an empty panel, and as no error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: A value is checked by a type, a set of choices, the name of another form, or a list with one of these.
Form = Any
#: Each form with its required and its optional keys.
FORMS: Mapping[str, tuple[Mapping[str, Form], Mapping[str, Form]]] = {
    "dashboard": (
        {"schemaVersion": int, "title": str, "panels": ["panel"], "templating": "templating"},
        {
            "uid": str, "tags": [str], "version": int, "editable": bool, "timezone": str, "refresh": str,
            "time": "time", "annotations": "annotations", "description": str,
        },
    ),
    "time": ({"from": str, "to": str}, {}),
    "annotations": ({"list": [dict]}, {}),
    "templating": ({"list": ["variable"]}, {}),
    "variable": (
        {"name": str, "type": {"query", "datasource"}, "query": (str, "variable query")},
        {"label": str, "datasource": "datasource", "refresh": {0, 1, 2}, "multi": bool, "includeAll": bool},
    ),
    "variable query": ({"query": str, "refId": str}, {}),
    "datasource": ({"type": {"prometheus"}, "uid": str}, {}),
    "panel": (
        {
            "id": int, "title": str, "type": {"timeseries", "state-timeline"}, "datasource": "datasource",
            "gridPos": "grid", "targets": ["target"], "fieldConfig": "field config",
        },
        {"description": str, "options": dict},
    ),
    "grid": ({"x": int, "y": int, "w": int, "h": int}, {}),
    # Of Grafana's data source Prometheus: public/app/plugins/datasource/prometheus/dataquery.cue.
    "target": ({"refId": str, "expr": str, "datasource": "datasource"}, {"legendFormat": str}),
    "field config": ({"defaults": "field", "overrides": [dict]}, {}),
    # Units: packages/grafana-data/src/valueFormats/categories.ts.
    "field": ({}, {"unit": {"s", "short", "cps", "bytes"}, "min": int, "mappings": ["mapping"]}),
    "mapping": ({"type": {"value"}, "options": dict}, {}),
    "mapped": ({"text": str}, {"color": str, "index": int}),
}  # fmt: skip
#: Variables that Grafana itself sets.
_GIVEN = {"__rate_interval"}
_COLUMNS = 24


def faults(dashboard: object) -> list[str]:
    """Return what Grafana would ignore, refuse or show wrongly, each with its place."""
    found = [*_misshapen("dashboard", dashboard, "dashboard")]
    return found or [*_wrong(json.loads(json.dumps(dashboard)))]


def _misshapen(form: Form, value: object, place: str) -> Iterator[str]:
    if isinstance(form, tuple):
        several = [[*_misshapen(one, value, place)] for one in form]
        yield from () if [] in several else several[0]
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for number, one in enumerate(value):
            yield from _misshapen(form[0], one, f"{place}[{number}]")
    elif isinstance(form, set):
        if value not in form or isinstance(value, bool):
            yield f"{place} is {value!r}"
    elif isinstance(form, type):
        if not isinstance(value, form) or (form is int and isinstance(value, bool)):
            yield f"{place} is {value!r}"
    elif not isinstance(value, dict):
        yield f"{place} is no {form}"
    else:
        required, optional = FORMS[form]
        yield from (f"{place} has no {key}" for key in required.keys() - value.keys())
        yield from (f"{place} has an unknown key {key}" for key in value.keys() - required.keys() - optional.keys())
        for key, one in value.items():
            if (inner := {**required, **optional}.get(key)) is not None:
                yield from _misshapen(inner, one, f"{place}.{key}")
        if form == "mapping":
            for key, one in value["options"].items():
                yield from _misshapen("mapped", one, f"{place}.options.{key}")


def _wrong(dashboard: Mapping[str, Any]) -> Iterator[str]:
    """Yield faults in a dashboard whose form is right."""
    variables = dashboard["templating"]["list"]
    sources = {f"${{{v['name']}}}" for v in variables if v["type"] == "datasource"}
    known = {v["name"] for v in variables} | _GIVEN
    for part in (*variables, *dashboard["panels"], *(t for p in dashboard["panels"] for t in p["targets"])):
        if "datasource" in part and part["datasource"]["uid"] not in sources:
            yield f"{part['datasource']['uid']} is no variable of a data source"
    text = json.dumps(dashboard)
    yield from (f"the variable {name} is not declared" for name in {*re.findall(r"\$\{?(\w+)", text)} - known)
    panels, taken = dashboard["panels"], dict[tuple[int, int], str]()
    if len({p["id"] for p in panels}) < len(panels):
        yield "two panels have one id"
    for panel in panels:
        grid = panel["gridPos"]
        if not panel["targets"] or len({t["refId"] for t in panel["targets"]}) < len(panel["targets"]):
            yield f"{panel['title']}: two queries have one refId, or there is none"
        if grid["x"] < 0 or grid["x"] + grid["w"] > _COLUMNS:
            yield f"{panel['title']} is wider than the page"
        for place in ((grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])):
            if taken.setdefault(place, panel["title"]) != panel["title"]:
                yield f"{panel['title']} covers {taken[place]}"
                break
