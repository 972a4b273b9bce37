"""Edges: reads or generates graphs for the bench of iterations, and computes results with one thread in memory."""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from falkirk.errors import MachineError

Numbers = npt.NDArray[np.int64]

#: The number of edges per node of a generated graph, and the exponent of its degrees.
EDGES_PER_NODE, _GAMMA = 4, 2.5


@dataclass(frozen=True, kw_only=True)
class Edges:
    """A graph. Its edges are in the order of their arrival, the oldest first.

    Args: bridge: one more edge, the only one between the two halves. skipped: the lines that were not read, in words.
    """

    name: str
    src: Numbers
    dst: Numbers
    bridge: tuple[int, int] | None = None
    skipped: str = ""

    @property
    def number(self) -> int:
        """The number of edges, without the bridge."""
        return len(self.src)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of each node, in the order of the nodes. Args: rounds: their number; 0 without rounds."""

    nodes: Numbers
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    rounds: int = 0


# -- read -------------------------------------------------------------------------------------------------------------


def read_graph(file: Path, seed: int = 1) -> Edges:
    """Return the graph of a file, which may be a `.gz` file.

    A line has two whole numbers and optionally a time, separated by white space or commas. If every line has a time,
    edges arrive in that order, otherwise in a random one. It skips repeated edges, comments, other lines, and a first
    line that counts the others.

    Raises: MachineError: `INPUT_MISSING`: the file has no edges.
    """
    with gzip.open(file, "rt", errors="replace") if file.suffix == ".gz" else file.open(errors="replace") as lines:
        read, comments, strange = _parsed(lines)
    counted = _counts(read)
    read = read[1:] if counted else read
    if not read:
        raise MachineError(
            "INPUT_MISSING", "the file has no edges.", where=file, hint="Write two numbers a line: source, target."
        )
    pairs = np.array([edge[:2] for edge in read], dtype=np.int64)
    if all(len(edge) > 2 for edge in read):
        order = np.argsort(np.array([edge[2] for edge in read]), kind="stable")
    else:
        order = np.random.default_rng(seed).permutation(len(read))
    pairs = pairs[order]
    first = np.sort(np.unique(pairs, axis=0, return_index=True)[1])
    told = {
        "comments": comments,
        "a line that counts the others": int(counted),
        "repeated edges": len(pairs) - len(first),
        f"lines without an edge (the first: {strange[0]!r})" if strange else "": len(strange),
    }
    skipped = "; ".join(f"{number:,} {what}" if number > 1 else what for what, number in told.items() if number)
    pairs = pairs[first]
    return Edges(name=file.name.split(".")[0], src=pairs[:, 0].copy(), dst=pairs[:, 1].copy(), skipped=skipped)


def _counts(read: list[tuple[float, ...]]) -> bool:
    """Whether the first line contains the numbers of nodes and edges on the other lines."""
    if len(read) < 2 or read[0][-1] != len(read) - 1:
        return False
    return read[0][0] >= len({node for edge in read[1:] for node in edge[:2]})


def _parsed(lines: Iterator[str]) -> tuple[list[tuple[float, ...]], int, list[str]]:
    """Return the numbers of each line with an edge, the number of comments, and the other lines."""
    read: list[tuple[float, ...]] = []
    comments, strange = 0, []
    for line in lines:
        text = line.strip()
        if text.startswith(("#", "%")):
            comments += 1
            continue
        fields = text.replace(",", " ").split()
        try:
            read.append((int(fields[0]), int(fields[1]), *[float(field) for field in fields[-1:] if len(fields) > 2]))
        except (ValueError, IndexError):
            if text:
                strange.append(text[:60])
    return read, comments, strange


# -- generated --------------------------------------------------------------------------------------------------------


def drawn_graph(edges: int, seed: int) -> Edges:
    """Return a random graph whose degrees follow a power law: two halves, and a bridge between their greatest nodes.

    Both ends of an edge are chosen at random by the nodes' weights (Chung and Lu). The nodes' numbers are random too,
    so the least number is no special node.
    """
    rng = np.random.default_rng(seed)
    nodes = max(4, edges // EDGES_PER_NODE)
    names = rng.permutation(nodes)
    halves = ((0, nodes // 2, edges // 2), (nodes // 2, nodes, edges - 1 - edges // 2))
    drawn = np.concatenate([first + _half(rng, last - first, number) for first, last, number in halves])
    drawn = names[rng.permutation(drawn)]
    bridge = int(names[0]), int(names[nodes // 2])
    return Edges(name=f"power_law_{edges}", src=drawn[:, 0].copy(), dst=drawn[:, 1].copy(), bridge=bridge)


def _half(rng: np.random.Generator, nodes: int, edges: int) -> Numbers:
    weights = np.cumsum(np.arange(1, nodes + 1) ** (-1 / (_GAMMA - 1)))
    found = np.empty(0, dtype=np.int64)
    while len(found) < edges:
        ends = np.searchsorted(weights, rng.random((2, edges)) * weights[-1])
        codes = np.concatenate((found, (ends[0] * nodes + ends[1])[ends[0] != ends[1]]))
        found = codes[np.sort(np.unique(codes, return_index=True)[1])]
    return np.stack(np.divmod(found[:edges], nodes), axis=1)


# -- in memory --------------------------------------------------------------------------------------------------------


def components(src: Numbers, dst: Numbers) -> Answer:
    """Return the least node that is connected with each node: union-find, in plain Python."""
    nodes, numbered = np.unique(np.concatenate((src, dst)), return_inverse=True)
    parent = list(range(len(nodes)))
    for one, other in zip(numbered[: len(src)].tolist(), numbered[len(src) :].tolist(), strict=True):
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        while parent[other] != other:
            parent[other] = parent[parent[other]]
            other = parent[other]
        if one < other:
            parent[other] = one
        elif other < one:
            parent[one] = other
    for node, above in enumerate(parent):  # its parent is lesser, so it is already complete
        parent[node] = parent[above]
    return Answer(nodes=nodes, values=nodes[np.array(parent, dtype=np.int64)])


def ranks(src: Numbers, dst: Numbers, tolerance: float, damping: float = 0.85) -> Answer:
    """Return the rank of each node, by power iteration, until no rank moves by more than the tolerance."""
    nodes, numbered = np.unique(np.concatenate((src, dst)), return_inverse=True)
    source, target = numbered[: len(src)], numbered[len(src) :]
    share = damping / np.bincount(source, minlength=len(nodes))[source]
    rank, rounds, moved = np.full(len(nodes), 1 - damping), 0, np.inf
    while moved > tolerance:
        after = 1 - damping + np.bincount(target, weights=rank[source] * share, minlength=len(nodes))
        rank, rounds, moved = after, rounds + 1, float(np.abs(after - rank).max())
    return Answer(nodes=nodes, values=rank, rounds=rounds)


def names_of(graphs: Sequence[Edges]) -> list[str]:
    """Return a unique name for each graph, suitable as part of a figure's name."""
    plain = ["".join(c if c.isalnum() else "_" for c in graph.name).lower() for graph in graphs]
    return [f"{name}_{plain[:i].count(name) + 1}" if name in plain[:i] else name for i, name in enumerate(plain)]
