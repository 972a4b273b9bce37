"""Looping: generates random programs with nested loops, as collections and as plain programs from scratch."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from falkirk.steps.differential import Collection
from falkirk.steps.differential.graph import Left

Row = tuple[int, int]
Rows = Counter[Row]
Step = Callable[[str, Collection], Collection]
"""Runs one of `STEPS`."""

#: Rows have columns a and b. For each row-by-row step: the output columns (name, input column, number to add), and
#: optionally a column and the bound below which it must be.
Columns = tuple[tuple[str, str, int], ...]
STEPS: dict[str, tuple[Columns, tuple[str, int] | None]] = {
    "more": ((("a", "a", 0), ("b", "b", 1)), ("b", 6)),
    "less": ((("a", "a", -1), ("b", "b", 0)), None),
    "swapped": ((("a", "b", 0), ("b", "a", 0)), None),
    "low": ((("a", "a", 0), ("b", "b", 0)), ("a", 3)),
    "both": ((("a", "a", 0), ("b", "a", 0)), None),
    "negated": ((("a", "a", 0), ("b", "b", 0)), None),
    "first": ((("k", "b", 0), ("one", "a", 0)), None),
    "second": ((("k", "a", 0), ("other", "b", 0)), None),
    "pair": ((("a", "one", 0), ("b", "other", 0)), None),
}
#: The operations on one collection, and on two.
ONE = ("more", "less", "swapped", "low", "both", "distinct", "min", "max", "count", "sum", "top")
TWO = ("concat", "without", "joined")
#: A program with more rows of one kind, or a greater number, is too large.
MUCH = 100_000


class TooMuchError(Exception):
    """The rows of a program grow too large."""


@dataclass(frozen=True, eq=False)
class Made:
    """A collection of a program. Args: kind: a source's name, or an operation. rounds: those of a loop."""

    kind: str
    of: "tuple[Made, ...]" = ()
    rounds: int = 0


def drawn(seed: int) -> Made:
    """Return a random program with a nested loop over the sources x and y."""
    draw = random.Random(seed)

    def some(there: list[Made], fuel: int) -> Made:
        """Return a random collection made from existing ones. It is added to them, so it may be read again."""
        if not fuel:
            return draw.choice(there)
        if draw.random() < 0.6:
            made = Made(draw.choice(ONE), (some(there, fuel - 1),))
        else:
            made = Made(draw.choice(TWO), (some(there, fuel - 1), some(there, draw.randrange(fuel))))
        there.append(made)
        return made

    def loop(there: list[Made], around: Made | None = None) -> Made:
        start, variable = some(there, 1), Made("variable")
        if around is not None:  # a loop is inside the loop in which its start is made
            start = Made(draw.choice(TWO), (around, start))
        inside = [*there, variable, variable, variable]
        body = some(inside, 2)
        if around is None:
            body = Made(draw.choice(TWO), (loop(inside, variable), body)[:: draw.choice([1, -1])])
        if draw.random() < 0.8:
            body = Made(draw.choice(["distinct", "distinct", "min", "max"]), (body,))
        return Made("iterate", (start, variable, body), rounds=draw.choice([1, 2, 3, 5, 9]))

    there = [Made("x"), Made("y")]
    outer = loop(there)
    return Made(draw.choice(TWO), (outer, some(there, 1)))


def changed(draw: random.Random, there: Rows) -> Rows:
    """Return random changes: rows to add and to remove."""
    held = sorted(there.elements())
    more = Counter((draw.randrange(5), draw.randrange(5)) for _ in range(draw.randrange(5)))
    more.subtract(draw.sample(held, draw.randint(0, len(held))) if draw.random() < 0.7 else [])
    return Counter({row: often for row, often in more.items() if often})


@dataclass
class Built:
    """A program as collections. Args: loops: the end of each loop."""

    sources: Mapping[str, Collection]
    step: Step
    loops: dict[Made, Left] = field(default_factory=dict)
    made: dict[Made, Collection] = field(default_factory=dict)

    def of(self, what: Made) -> Collection:
        """Return a collection of the program."""
        if what not in self.made:
            self.made[what] = self._of(what)
        return self.made[what]

    def _of(self, what: Made) -> Collection:
        if not what.of:
            return self.sources[what.kind]
        if what.kind == "iterate":
            return self._loop(what, *what.of)
        first, *others = map(self.of, what.of)
        if what.kind in STEPS:
            return self.step(what.kind, first)
        if what.kind == "distinct":
            return first.distinct()
        if what.kind == "top":
            return first.groupBy("a").top(2, "b")
        if what.kind == "concat":
            return first.concat(*others)
        if what.kind == "without":
            return first.concat(self.step("negated", others[0]))
        if what.kind == "joined":
            pairs = self.step("first", first).join(self.step("second", others[0]), "k")
            return self.step("pair", pairs)
        return first.groupBy("a").agg({"b": (what.kind, "" if what.kind == "count" else "b")})

    def _loop(self, what: Made, start: Made, variable: Made, body: Made) -> Collection:
        def apply(current: Collection) -> Collection:
            self.made[variable] = current
            return self.of(body)

        made = self.of(start).iterate(apply, rounds=what.rounds)
        assert isinstance(made._node, Left)
        self.loops[what] = made._node
        return made


@dataclass
class Plain:
    """A program that computes from the start.

    Attributes: rested: for each loop, whether its last round changed nothing in any of its runs. ended: for each loop,
        whether one more application of its body would change nothing.
    """

    sources: Mapping[str, Rows]
    rested: dict[Made, bool] = field(default_factory=dict)
    ended: dict[Made, bool] = field(default_factory=dict)
    made: dict[Made, Rows] = field(default_factory=dict)

    def of(self, what: Made) -> Rows:
        """Return the count of each row. Raises: TooMuchError."""
        if what not in self.made:
            found = Counter({row: often for row, often in self._of(what).items() if often})
            if any(max(map(abs, (*row, often))) > MUCH for row, often in found.items()):
                raise TooMuchError
            self.made[what] = found
        return self.made[what]

    def _of(self, what: Made) -> Rows:
        if not what.of:
            return self.sources[what.kind]
        if what.kind == "iterate":
            return self._loop(what, *what.of)
        first, *others = map(self.of, what.of)
        found: Rows = Counter()
        if what.kind in STEPS:
            columns, less = STEPS[what.kind]
            sign = -1 if what.kind == "negated" else 1
            for row, often in first.items():
                a, b = (dict(zip("ab", row, strict=True))[of] + more for _, of, more in columns)
                if less is None or {"a": a, "b": b}[less[0]] < less[1]:
                    found[a, b] += sign * often
        elif what.kind in ("concat", "without"):
            found.update(first)
            for row, often in others[0].items():
                found[row] += often if what.kind == "concat" else -often
        elif what.kind == "joined":
            for (a, k), often in first.items():
                for (other, b), more in others[0].items():
                    found[a, b] += often * more * (k == other)
        elif what.kind == "distinct":
            return Counter({row: 1 for row, often in first.items() if often > 0})
        elif what.kind == "count":  # the counts of keys, which can be negative like those of rows
            keys: Counter[int] = Counter()
            for (a, _), often in first.items():
                keys[a] += often
            return Counter({item: 1 for item in keys.items() if item[1] > 0})
        else:
            for a in {a for (a, _), often in first.items() if often > 0}:
                values = sorted(Counter({b: often for (of, b), often in first.items() if of == a}).elements())
                if what.kind == "top":
                    found.update((a, b) for b in values[-2:])
                else:
                    found[a, {"sum": sum, "min": min, "max": max}[what.kind](values)] = 1  # type: ignore[operator]
        return found

    def _loop(self, what: Made, start: Made, variable: Made, body: Made) -> Rows:
        def apply(current: Rows, *told: dict[Made, bool]) -> Rows:
            rested, ended = told or ({}, {})
            return Plain(self.sources, rested, ended, {**self.made, variable: current}).of(body)

        current, last = self.of(start), None
        for _ in range(what.rounds):
            last, current = current, apply(current, self.rested, self.ended)
            if current == last:
                break
        self.rested[what] = self.rested.get(what, True) and current == last
        self.ended[what] = self.ended.get(what, True) and apply(current, {}, {}) == current
        return current
