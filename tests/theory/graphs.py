"""Small applications for testing the solver and the monitor: random ones, and all consistent choices for them."""

import random
from collections.abc import Iterator
from itertools import product

from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier
from falkirk.theory.graph import Edge, Graph, Processor
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.projection import Enter, Feedback, Leave
from falkirk.theory.times import OMEGA, TopicPartition
from formal.policy import initial
from formal.projection import Same
from tests.theory.consistent import violations
from tests.theory.lexicographic import Lexicographic, lexicographic

EPOCHS = StructuredFrontier.of(1, [])
ROUNDS = StructuredFrontier.of(2, [])
OFFSETS = OffsetFrontier(())

Kind = Same | Enter | Leave | Feedback | Lexicographic | None
Application = tuple[Graph, dict[str, Available], list[tuple[str, Metadata]]]
"""A graph, what is available at first, and the checkpoints in the order in which they arrive."""


def through(epoch: float) -> StructuredFrontier:
    return StructuredFrontier.through_epoch(epoch)


def epoch_graph(names: str, paths: list[str], *, notified: str = "") -> Graph:
    """Return a graph of processors with one-letter names over plain epochs. A path is the two letters of its ends."""
    return Graph(
        [Processor(name=n, domain=EPOCHS, notified=n in notified) for n in names],
        [Edge(name=p, source=p[0], target=p[1], projection=Same(), domain=EPOCHS) for p in paths],
    )


def checkpoint(graph: Graph, name: str, epoch: int, *, logs: bool = False) -> Metadata:
    """Return Ξ of a processor over epochs. At every epoch it has received and sent a message and got a notification."""
    at = through(epoch)
    return Metadata(
        frontier=at,
        notified=at if graph.processors[name].notified else None,
        delivered={d.name: at for d in graph.inputs[name]},
        discarded={} if logs else {e.name: at for e in graph.outputs[name]},
    )


def random_application(seed: int, *, size: int = 5, checkpoints: int = 3, ragged: bool = False) -> Application:
    """Return an application with mixed domains (epochs, rounds in a loop, offsets), policies and cycles.

    Args: ragged: whether over-estimates may shrink from one checkpoint to the next.
    """
    rng = random.Random(seed)
    domains = [rng.choice([EPOCHS, EPOCHS, ROUNDS, OFFSETS]) for _ in range(rng.randint(2, size))]
    processors = [Processor(name=f"p{i}", domain=d, notified=rng.random() < 0.3) for i, d in enumerate(domains)]
    edges = [_edge(rng, i, processors) for i in range(rng.randint(1, 2 * size))]
    graph = Graph(processors, [e for e in edges if e is not None])
    available: dict[str, Available] = {}
    arrivals: list[list[tuple[str, Metadata]]] = []
    for processor in processors:
        if rng.random() < 0.4:
            available[processor.name] = Anywhere(discards=rng.random() < 0.5)
        else:
            available[processor.name] = Checkpoints([initial(processor)])
            chain = _chain(rng, graph, processor, rng.randint(0, checkpoints), ragged=ragged)
            arrivals.append([(processor.name, m) for m in chain])
            if rng.random() < 0.2:
                rng.shuffle(arrivals[-1])
    merged = []
    while any(arrivals):
        merged.append(rng.choice([a for a in arrivals if a]).pop(0))
    return graph, available, merged


def _edge(rng: random.Random, number: int, processors: list[Processor]) -> Edge | None:
    source, target = rng.choice(processors), rng.choice(processors)
    name = f"e{number}"
    pair = (getattr(source.domain, "arity", 0), getattr(target.domain, "arity", 0))
    known: dict[tuple[int, int], list[Kind]] = {
        (1, 1): [Same()] * 3,
        (1, 2): [Enter(), Lexicographic(Enter())],
        (2, 1): [Leave()],
        (2, 2): [Feedback(), Lexicographic(Feedback()), Same()],
    }
    kinds: list[Kind] = [None, *known.get(pair, [])]
    sequences = frozenset({TopicPartition(topic=name, partition=0)}) if pair[1] == 0 else frozenset()
    return Edge(
        name=name, source=source.name, target=target.name, projection=rng.choice(kinds), domain=target.domain,
        sequences=sequences,
    )  # fmt: skip


def some_frontier(rng: random.Random, domain: Frontier, edge: Edge | None, level: int) -> Frontier:
    """Return a frontier of a domain; a greater level gives a greater frontier."""
    if isinstance(domain, OffsetFrontier):
        sequences = [TopicPartition(topic="own", partition=0)] if edge is None else edge.sequences
        return OffsetFrontier.of(dict.fromkeys(sequences, level))
    if domain == EPOCHS:
        return through(level)
    return lexicographic(rng.choice([(level, OMEGA), (level, 0), (level, 1)]))


def _chain(rng: random.Random, graph: Graph, processor: Processor, length: int, *, ragged: bool) -> Iterator[Metadata]:
    levels = sorted(rng.sample(range(6), length))
    grown: dict[tuple[str, str], Frontier] = {}

    def grow(kind: str, edge: Edge, domain: Frontier, level: int) -> Frontier:
        frontier = some_frontier(rng, domain, edge, max(0, level + rng.randint(-2, 1)))
        if not ragged or kind == "projected":
            frontier = grown[kind, edge.name] = frontier | grown.get((kind, edge.name), domain)
        return frontier

    before: Frontier = processor.domain
    for level in levels:
        at: Frontier
        if isinstance(processor.domain, OffsetFrontier):
            sequences = [s for d in graph.inputs[processor.name] for s in d.sequences]
            sequences.append(TopicPartition(topic="own", partition=0))
            at = before | OffsetFrontier.of({s: max(1, level + rng.randint(-1, 1)) for s in sequences})
        else:
            at = some_frontier(rng, processor.domain, None, level)
        if at <= before:
            continue
        before = at
        inputs, outputs = graph.inputs[processor.name], graph.outputs[processor.name]
        yield Metadata(
            frontier=at,
            notified=at if processor.notified and rng.random() < 0.7 else None,
            delivered={
                d.name: d.restrict(at) if rng.random() < 0.7 else grow("delivered", d, d.domain, level) for d in inputs
            },
            projected={e.name: grow("projected", e, e.domain, level) for e in outputs if e.projection is None},
            discarded={e.name: grow("discarded", e, e.domain, level) for e in outputs if rng.random() < 0.5},
        )


def consistent_choices(
    graph: Graph, available: dict[str, Available], universe: dict[str, list[Frontier]]
) -> Iterator[tuple[dict[str, Metadata], dict[str, Frontier]]]:
    """Yield every consistent choice with frontiers from a universe, decided by the constraints alone."""
    names = list(graph.processors)
    options = []
    for name in names:
        mine = available[name]
        if isinstance(mine, Checkpoints):
            metadata = mine.chain
        else:
            parts = (graph.processors[name], graph.inputs[name], graph.outputs[name])
            metadata = [mine.describe(f, *parts) for f in universe[name]]
        options.append([(m, f) for m in metadata for f in universe[name] if f <= m.frontier])
    for pick in product(*options):
        chosen = {n: m for n, (m, _) in zip(names, pick, strict=True)}
        notified = {n: f for n, (_, f) in zip(names, pick, strict=True)}
        if next(violations(graph, available, chosen, notified), None) is None:
            yield chosen, notified
