"""Searches for the cheapest explanation of one key's outputs: a script of moves from its inputs to the outputs.

A guarantee is a set of permitted moves (Delivery, consistency, and determinism, §III-E). A run of a key is exactly-once
if *deliver* and *silent* suffice in some order that respects each source partition. It is at-most-once if rows may also
be *skipped*, and so on. With every move permitted there is always a script, and the cheapest one is the smallest
explanation of the fault.

The search is A*: the lowest cost first, and for equal costs the node that got furthest. A node is (outputs explained,
rows consumed per source, state). So two paths to the same node are explored once. The work is bounded; at the bound the
search reports that it gave up.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from falkirk.checker.content import content, content_of
from falkirk.checker.model import Model
from falkirk.checker.run import InputRow, KeyRun, RowPlace, Values
from falkirk.checker.run_index import RunIndex
from falkirk.checker.verdict import Guarantee

S = TypeVar("S")


class Move(Enum):
    """The possible explanations of the next row or the next output."""

    DELIVER = "the row was applied, and it gives the next output"
    SILENT = "the row was applied, and it has no output"
    REDELIVER = "the next output repeats an earlier one"
    SKIP = "the row was never applied"
    LOSE = "the row was applied, but its output is missing"
    REAPPLY = "a row was applied a second time"
    STRAY = "no row explains the next output"


_RUN = frozenset({Move.DELIVER, Move.SILENT})
PERMITTED = {
    Guarantee.EXACTLY_ONCE: _RUN,
    Guarantee.REPEATED_DELIVERY: _RUN | {Move.REDELIVER},
    Guarantee.AT_MOST_ONCE: _RUN | {Move.SKIP},
    Guarantee.AT_LEAST_ONCE: _RUN | {Move.REAPPLY},
    Guarantee.BROKEN: _RUN | {Move.REDELIVER, Move.SKIP, Move.LOSE, Move.STRAY},
}
"""The moves that each guarantee permits. A broken run may use all of them except REAPPLY."""

_DISCARDS_OUTPUT = frozenset({Move.REDELIVER, Move.STRAY, Move.REAPPLY})
_LEAVES_ROW = frozenset({Move.SKIP, Move.LOSE})


class Failure(Enum):
    """The reason why there is no script."""

    IMPOSSIBLE = "no order of the inputs explains the outputs"
    GAVE_UP = "the search for an order of the inputs was given up"


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One move: its row, the index of its output, and the expected output of the row."""

    move: Move
    row: InputRow | None = None
    observed: int | None = None
    expected: Values | None = None


Script = tuple[SearchStep, ...]
_Positions = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Node(Generic[S]):
    explained: int
    positions: _Positions
    state: S


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """External limits of a search: the rows that must be applied, the rows that must not, and the number of nodes.

    With `thorough`, it also searches for alternatives to an output that fits, even if every move is permitted.
    """

    keep: frozenset[RowPlace] = frozenset()
    skip: frozenset[RowPlace] = frozenset()
    nodes_max: int = 100_000
    thorough: bool = False


class Search(Generic[S]):
    """The search over one key's run under one set of permitted moves."""

    def __init__(self, run: KeyRun, model: Model[S], moves: frozenset[Move], limits: SearchLimits) -> None:
        self._run = run
        self._model = model
        self._moves = moves
        self._limits = limits
        self._outputs = len(run.contents)
        self._ends = tuple(map(len, run.sources))
        first: dict[Hashable, int] = {}
        self._repeats = [first.setdefault(each, index) < index for index, each in enumerate(run.contents)]
        self._echoes = RunIndex(run, model)
        self._must_explain = not moves & _DISCARDS_OUTPUT

    def find(self) -> Script | Failure:
        """Return the cheapest script, or the reason why there is none."""
        start = _Node(0, (0,) * len(self._ends), self._model.initial())
        # Every path visits each row and each output at most once, so long runs may visit proportionally more nodes.
        visits_left = self._limits.nodes_max + 8 * (self._outputs + sum(self._ends))
        tie = count()
        bound = self._bound(start)
        queue = [] if bound is None else [(bound, 0, next(tie), 0, start)]
        best: dict[Hashable, int] = {self._identity(start): 0}
        came: dict[Hashable, tuple[Hashable, SearchStep]] = {}
        closed: set[Hashable] = set()
        while queue:
            _, _, _, cost, node = heappop(queue)
            here = self._identity(node)
            if here in closed:
                continue
            if node.explained == self._outputs and node.positions == self._ends:
                return _script(came, here)
            closed.add(here)
            visits_left -= 1
            for extra, after, step in self._successors(node):
                if step.move is Move.REAPPLY:
                    visits_left -= 1
                there = self._identity(after)
                reached = cost + extra
                if there in closed or best.get(there, reached + 1) <= reached:
                    continue
                bound = self._bound(after)
                if bound is None:
                    continue
                best[there] = reached
                came[there] = (here, step)
                progress = after.explained + sum(after.positions)
                heappush(queue, (reached + bound, -progress, next(tie), reached, after))
            if visits_left < 0:
                return Failure.GAVE_UP
        return Failure.IMPOSSIBLE

    def _identity(self, node: _Node[S]) -> Hashable:
        return (node.explained, node.positions, content_of(node.state))

    def _bound(self, node: _Node[S]) -> int | None:
        """Return a lower bound of the remaining cost, or None if no script leads through here: each row has at most one
        output."""
        outputs_left = self._outputs - node.explained
        rows_left = sum(self._ends) - sum(node.positions)
        if outputs_left and self._must_explain and not self._echoes.can_come(node.explained, node.positions):
            return None
        if outputs_left > rows_left:
            return None if self._must_explain else outputs_left - rows_left
        if rows_left > outputs_left and self._model.every_row_answers:
            return rows_left - outputs_left if self._moves & _LEAVES_ROW else None
        return 0

    def _successors(self, node: _Node[S]) -> Iterator[tuple[int, _Node[S], SearchStep]]:
        """Yield (cost, node after, step) for the moves from `node`."""
        discards = list(self._discards(node))
        done = node.explained == self._outputs
        if Move.STRAY in self._moves and not done and not self._echoes.can_come(node.explained, node.positions):
            # It makes no difference when the output is discarded, so it is discarded now.
            yield from discards
            return
        sources = [source for source, position in enumerate(node.positions) if position < self._ends[source]]
        if self._must_explain and self._model.every_row_answers:
            # A row that no output needs must be skipped. It makes no difference when, so it is skipped now.
            here = node.explained, node.positions
            sources = [each for each in sources if not self._echoes.wanted(each, *here)][:1] or sources
        steps = [
            step
            for source in sources
            for step in self._consume(node, source, self._run.sources[source][node.positions[source]])
        ]
        greedy = Move.STRAY in self._moves and not self._limits.thorough
        if greedy and any(cost == 0 for cost, _, _ in steps):
            # If every move is permitted, a script always exists, and for one source it never costs more to accept an
            # output that fits. So alternatives to a fitting row are not kept in memory.
            yield from (step for step in steps if step[0] == 0)
            return
        yield from steps
        yield from discards

    def _discards(self, node: _Node[S]) -> Iterator[tuple[int, _Node[S], SearchStep]]:
        """Yield the moves that explain the next output without the next row of any source."""
        if node.explained == self._outputs:
            return
        beyond = _Node(node.explained + 1, node.positions, node.state)
        if Move.REDELIVER in self._moves and self._repeats[node.explained]:
            yield 1, beyond, SearchStep(Move.REDELIVER, observed=node.explained)
        elif Move.STRAY in self._moves:
            yield 1, beyond, SearchStep(Move.STRAY, observed=node.explained)
        if Move.REAPPLY in self._moves:
            yield from self._reapply(node)

    def _consume(self, node: _Node[S], source: int, row: InputRow) -> Iterator[tuple[int, _Node[S], SearchStep]]:
        positions = (*node.positions[:source], node.positions[source] + 1, *node.positions[source + 1 :])
        state, expected = self._model.step(node.state, row.row)
        if row.place not in self._limits.skip:
            if expected is None:
                yield 0, _Node(node.explained, positions, state), SearchStep(Move.SILENT, row)
            elif node.explained < self._outputs and content(expected) == self._run.contents[node.explained]:
                step = SearchStep(Move.DELIVER, row, node.explained, expected)
                yield 0, _Node(node.explained + 1, positions, state), step
        if row.place in self._limits.keep:
            return
        if self._must_explain and not self._echoes.spare(source, node.explained, node.positions):
            return
        # LOSE comes first: among equal costs the first is tried first, and here it is more likely. Without a change of
        # state, a lost output and a skipped row are the same.
        changes = Move.LOSE in self._moves and expected is not None and content_of(state) != content_of(node.state)
        if changes:
            yield 1, _Node(node.explained, positions, state), SearchStep(Move.LOSE, row, None, expected)
        if Move.SKIP in self._moves:
            yield 1, _Node(node.explained, positions, node.state), SearchStep(Move.SKIP, row, None, expected)

    def _reapply(self, node: _Node[S]) -> Iterator[tuple[int, _Node[S], SearchStep]]:
        for row in self._echoes.earlier(node.explained, node.positions):
            state, expected = self._model.step(node.state, row.row)
            if expected is not None and content(expected) == self._run.contents[node.explained]:
                step = SearchStep(Move.REAPPLY, row, node.explained, expected)
                yield 1, _Node(node.explained + 1, node.positions, state), step


def _script(came: dict[Hashable, tuple[Hashable, SearchStep]], end: Hashable) -> Script:
    steps = []
    while end in came:
        end, step = came[end]
        steps.append(step)
    return tuple(reversed(steps))


def follows_exactly(run: KeyRun, model: Model[S]) -> bool:
    """Return whether a straight pass explains the outputs exactly. It always takes the first source whose next row
    fits.

    For one source partition, the result is certain. For several, False means that a search has to decide. Linear time.
    """
    contents = run.contents
    end = len(contents)
    explained = 0
    state = model.initial()
    if len(run.sources) == 1:
        for row in run.sources[0]:
            state, expected = model.step(state, row.row)
            if expected is not None:
                if explained == end or content(expected) != contents[explained]:
                    return False
                explained += 1
        return explained == end
    waiting = [iter(source) for source in run.sources]
    heads = [next(rows, None) for rows in waiting]
    while any(heads):
        for source, head in enumerate(heads):
            if head is None:
                continue
            after, expected = model.step(state, head.row)
            fits = expected is None or (explained < end and content(expected) == contents[explained])
            if fits:
                state = after
                explained += expected is not None
                heads[source] = next(waiting[source], None)
                break
        else:
            return False
    return explained == end
