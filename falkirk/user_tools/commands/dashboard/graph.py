"""Graph: the nodes and edges that the page draws, with the facts of the recorded plan about each.

A node is an input, a step of a unit, or a sink. Units are regions and batches: the page draws one as a hull around
its steps. Edges between units have a log, whose frontiers move (progress.py); edges within a unit have none.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from falkirk.recovery.protocol.layout import Layout
from falkirk.theory.ids import LogId, LogKind

_Values = Mapping[str, Any]


def graph_of(plan: _Values, layout: Layout) -> dict[str, Any]:
    """Return the graph of an application. Args: plan: as in `plan.json` of its home. layout: as in its shape."""
    units = {u["name"]: u for u in (*plan["regions"], *plan["batches"])}
    processors = {name: _processors(unit) for name, unit in units.items()}
    inputs = {log: f"in:{log}" for log in layout.sources}
    nodes = [{"id": node, "kind": "input", "label": _input(plan, log)} for log, node in inputs.items()]
    edges: list[dict[str, Any]] = []
    for name, steps in processors.items():
        nodes += [{"id": _step(name, s), "kind": "step", "label": s, "unit": name} for s in steps]
        pairs = pairwise(steps)
        edges += [
            {"id": f"{name}:{a}:{b}", "from": _step(name, a), "to": _step(name, b), "kind": "inside"} for a, b in pairs
        ]
    sinks = [_sink(plan, layout, sink) for sink in plan["sinks"]]
    for name, stage in layout.stages.items():
        if name not in units:
            continue
        for log in stage.inputs:
            writer = layout.writer(log)
            if writer is not None and writer.name not in units:
                continue
            start = inputs[log] if writer is None else _step(writer.name, processors[writer.name][-1])
            kind = "view" if log in stage.views else "reads" if writer is None else "hop"
            edge = {"id": layout.edge(log, name), "from": start, "to": _step(name, processors[name][0])}
            edges.append({**edge, "kind": kind, "log": str(log), "of": _counted(log)})
    for sink in sinks:
        nodes.append({"id": f"out:{sink['name']}", "kind": "sink", "label": sink["to"], "sink": sink["name"]})
        if (unit := sink["unit"]) is not None:
            edges.append({
                "id": f"sink {sink['name']}", "from": _step(unit, processors[unit][-1]),
                "to": f"out:{sink['name']}", "kind": "publishes", "of": _counted(layout.stages[unit].output),
            })  # fmt: skip
    return {
        "application": plan["application"],
        "units": [_unit(plan, unit, processors[name]) for name, unit in units.items()],
        "nodes": nodes,
        "edges": edges,
        "sinks": sinks,
    }


def _processors(unit: _Values) -> tuple[str, ...]:
    return tuple(unit.get("processors", (unit["name"],))) or ("copies",)


def _step(unit: str, processor: str) -> str:
    return f"step:{unit}/{processor}"


def _input(plan: _Values, log: LogId) -> str:
    if log.kind is LogKind.FILES:
        return f"files {next((r['name'] for b in plan['batches'] for r in b['reads'] if r['log'] == log), log)}"
    posted = next((push["path"] for push in plan["push"] if push["source"] in log), None)
    return f"topic {log}" if posted is None else f"POST {posted}"


def _counted(log: LogId) -> str:
    return "epochs" if log.kind is LogKind.EPOCHS else "records"


def _sink(plan: _Values, layout: Layout, sink: _Values) -> dict[str, Any]:
    to = str(sink["to"])
    return {
        "name": sink["sink"], "to": to, "unit": _writer(plan, layout, sink), "promise": sink["promise"],
        "when": sink["when"], "why": sink["why"], "awaits": sink["awaits"], "held": sink["held"] is not None,
        "within_s": sink["within_s"], "advice": sink["advice"], "costs": sink["costs"],
        "reasons": [{"text": d["text"], "where": d.get("declared")} for d in sink["details"] if d["kind"] != "epoch"],
    }  # fmt: skip


def _writer(plan: _Values, layout: Layout, sink: _Values) -> str | None:
    """Return the unit that writes a sink."""
    topic = str(sink["to"]).removeprefix("topic ")
    for region in plan["regions"]:
        if topic in (region["writes"], region["released_to"]):
            return str(region["name"])
    for batch in plan["batches"]:
        if any(w["sink"] == sink["sink"] for w in batch["writes"]):
            return str(batch["name"])
    return None


def _unit(plan: _Values, unit: _Values, processors: Iterable[str]) -> dict[str, Any]:
    is_live = "policy" in unit
    facts: list[tuple[str, str]] = []
    if is_live:
        facts.append(("runs", f"live: {unit['engine_reason']}"))
        twins = ", two queries at different times" if unit.get("twins") else ""  # older plans do not say
        facts.append(("checkpoint", f"every {unit['interval_s']:g} s{twins}, policy {unit['policy']}"))
        facts.append(("failure", unit["consequence"]))
    else:
        facts.append(("runs", f"{unit['engine']}: {unit['engine_reason']}"))
        facts.append(("epoch", f"ends {unit['cut']}"))
        if unit["state"] is not None:
            facts.append(("state", unit["state"]))
    for name in processors:
        known = plan["properties"].get(name)
        if known is not None:
            differs = "; ".join(known["differs"])
            facts.append(("steps", f"{name}: not deterministic: {differs}" if differs else f"{name}: deterministic"))
    facts.append(("declared", unit["declared"]))
    kind = "live" if is_live else "iteration" if unit["engine"].endswith("round") else "batch"
    return {"name": unit["name"], "kind": kind, "facts": facts, "every": _every(unit, is_live)}


def _every(unit: _Values, is_live: bool) -> str:
    return f"live, every {unit['interval_s']:g} s" if is_live else f"batch, {unit['cut'].partition(',')[0]}"
