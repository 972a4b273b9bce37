"""Mermaid: the graph of a plan as mermaid text: inputs, regions with their processors, hops, batches and outputs."""

from collections.abc import Iterator
from itertools import pairwise

from falkirk.plan.guarantees import epochs
from falkirk.plan.plan import Plan


def mermaid(plan: Plan) -> str:
    """Return the graph. Nodes are numbered, so that names may hold any character."""
    return "\n".join(["flowchart LR", *_Graph(plan).lines()]) + "\n"


class _Graph:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._posted = {push.topic.topic: push.path for push in plan.push}
        self._numbers: dict[tuple[str, str], str] = {}
        self._edges: list[str] = []
        self._declared: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yield the lines after the first."""
        units = [*self._regions(), *self._batches()]
        yield from (f"    {line}" for line in (*self._declared, *units, *self._edges))

    def _id(self, kind: str, name: str) -> str:
        return self._numbers.setdefault((kind, name), f"{kind}{len(self._numbers)}")

    def _node(self, kind: str, name: str, text: str, shape: str) -> str:
        """Return the id of a log, a sink or an input. The first call declares it."""
        is_new = (kind, name) not in self._numbers
        found = self._id(kind, name)
        if is_new:
            before, after = shape.split("…")
            self._declared.append(f"{found}{before}{_quoted(text)}{after}")
        return found

    def _regions(self) -> Iterator[str]:
        for region in self._plan.regions:
            inner = [self._id("step", f"{region.name} {name}") for name in region.processors]
            inner = inner or [self._id("step", region.name)]
            yield f"subgraph {self._id('region', region.name)}[{_quoted(f'{region.name} (live)')}]"
            for found, name in zip(inner, region.processors or ("copies",), strict=True):
                yield f"    {found}[{_quoted(name)}]"
            yield from (f"    {first} --> {second}" for first, second in pairwise(inner))
            yield "end"
            self._edges += [f"{self._log(each.topic.topic, each.name)} --> {inner[0]}" for each in region.sources]
            batches = {batch.log: batch.name for batch in self._plan.batches}
            views = [self._id("batch", batches[view.log]) for view in region.views]
            self._edges += [f"{view} -. newest .-> {inner[0]}" for view in views]
            self._edges.append(f"{inner[-1]} --> {self._log(region.output.topic, region.name)}")
            if region.released_to is not None:
                held = self._log(region.output.topic, region.name)
                sink = self._sink(f"topic {region.released_to.topic}")
                self._edges.append(f"{held} -. after a checkpoint .-> {sink}")

    def _batches(self) -> Iterator[str]:
        logs = {batch.log: batch.name for batch in self._plan.batches}
        for batch in self._plan.batches:
            here = self._id("batch", batch.name)
            yield f"{here}[[{_quoted(f'{batch.name} ({epochs(batch.cut)})')}]]"
            for given in batch.inputs:
                if given.log in logs:
                    read = self._id("batch", logs[given.log])
                elif given.folder is not None:
                    read = self._node("input", given.log, f"files in {given.folder.path}", "[/…/]")
                else:
                    read = self._log(given.log, given.name)
                self._edges.append(f"{read} {'-. newest .->' if given.view else '-->'} {here}")
            self._edges += [f"{here} --> {self._sink(sink.to.address, sink.name)}" for sink in batch.sinks]

    def _log(self, topic: str, name: str) -> str:
        """Return the id of a topic that is an input, a hop, a held log or an output."""
        writers = [region for region in self._plan.regions if region.output.topic == topic]
        if not writers:
            path = self._posted.get(topic)
            return self._node("input", topic, f"topic {topic}" if path is None else f"POST {path}", "[/…/]")
        if writers[0].hop is not None:
            return self._node("hop", topic, f"hop {name}", "[(…)]")
        if writers[0].released_to is not None:
            return self._node("held", topic, f"held log of {writers[0].name}", "[(…)]")
        return self._sink(f"topic {topic}")

    def _sink(self, where: str, name: str = "") -> str:
        """Return the id of an output. Args: name: the sink's name, because two outputs may show the same address."""
        return self._node("sink", f"{where} {name}", where, "([…])")


def _quoted(text: str) -> str:
    """Return text in quotes for mermaid, with quotes and brackets as entities."""
    escaped = "".join(f"#{ord(c)};" if c in '"#<>&`[]{}\\\n\r\t' else c for c in text)
    return f'"{escaped}"'
