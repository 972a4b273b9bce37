"""The oracle: decides whether a run without failures could give the published outputs (Definition 6).

It knows the input, the user's function, and the outputs. It takes non-deterministic choices from the outputs: any
choice is possible, but all outputs must agree on it.
"""

from collections import defaultdict

from falkirk.recovery.protocol.layout import Layout
from tests.simulation.elements import Element, compute
from tests.simulation.world import World


class Illegal(AssertionError):
    """No run without failures gives these outputs."""


def judge(world: World, inputs: dict[str, list[Element]], *, complete: bool) -> int:
    """Judge every sink; return the number of outputs.

    Args: inputs: all elements ever put into each source, by key in order. complete: if true, no output may be missing
        at an end.
    """
    layout, found = world.layout, 0
    chosen: dict[tuple[str, str], int] = {}
    sinks = _sinks(layout)
    outputs: dict[str, dict[str, list[Element]]] = {}
    for sink in sinks:
        by_key: dict[str, list[Element]] = defaultdict(list)
        outputs[sink] = by_key
        for _, log in world.partitions(sink):
            for element in log.elements:
                by_key[element.key].append(element)
                found += 1
                for stage, value in element.draws:
                    choice = (stage, _seen_by(layout, stage, sinks[sink], element.path))
                    if chosen.setdefault(choice, value) != value:
                        raise Illegal(
                            f"{sink}: {element.path} rests on another choice of {stage} than other outputs do"
                        )
    for sink, by_key in outputs.items():
        expected = _expected(layout, sinks[sink], inputs, chosen)
        for key in expected.keys() | by_key.keys():
            due, out = expected.get(key, []), by_key.get(key, [])
            for place, element in enumerate(out):
                if place >= len(due) or (element.path, element.digest) != (due[place].path, due[place].digest):
                    raise Illegal(f"{sink}: output {place} of {key} is {element}, not {due[place : place + 1]}")
            if complete and len(out) != len(due):
                raise Illegal(f"{sink}: {key} has {len(out)} outputs of {len(due)}")
    return found


def _sinks(layout: Layout) -> dict[str, str]:
    """Return the region that writes each sink's topic."""
    direct = {s.output: s.name for s in layout.stages.values() if s.output not in layout.hops}
    return direct | {sink: w.name for held, sink in layout.held.items() if (w := layout.writer(held)) is not None}


def _chain(layout: Layout, stage: str) -> list[str]:
    """Return the regions from the source to this one. Each reads one topic."""
    found = [stage]
    while (writer := layout.writer(layout.stages[found[0]].inputs[0])) is not None:
        found.insert(0, writer.name)
    return found


def _seen_by(layout: Layout, stage: str, last: str, path: str) -> str:
    """Return the path of the element for which `stage` made its choice."""
    steps = len(_chain(layout, last)) - _chain(layout, last).index(stage)
    return path.rsplit("/", steps)[0]


def _expected(
    layout: Layout, last: str, inputs: dict[str, list[Element]], chosen: dict[tuple[str, str], int]
) -> dict[str, list[Element]]:
    stages = [layout.stages[n] for n in _chain(layout, last)]
    result = {}
    for key, elements in inputs.items():
        if not key.startswith(stages[0].inputs[0] + "."):
            continue
        states = dict.fromkeys((s.name for s in stages), "")
        waiting = [list(elements), *([] for _ in stages)]
        for place, stage in enumerate(stages):
            for element in waiting[place]:
                # A choice that no output shows is unknown, but then no later result is published yet either.
                draw = chosen.get((stage.name, element.path), -1)
                states[stage.name], sent = compute(stage, states[stage.name], element, draw)
                waiting[place + 1].extend(sent)
        result[key] = waiting[-1]
    return result
