"""Random applications over all live operators. A seed chooses the processors, their steps, policies and readers.

Each step keeps the columns `id`, `at` and `n`. Each processor has a model of its results in plain Python.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Literal

from pyspark.sql import functions as F

import falkirk as fk
from tests import chained
from tests.chaos import program_models as models
from tests.chaos.program_models import END, Outcome, Row, States
from tests.chaos.program_steps import (
    AFTER,
    KEEPING,
    SIMPLE,
    STATE_BY_KEY,
    TOTALS,
    Step,
    first,
    python_state,
    timed,
    window,
)

Records = Mapping[str, Mapping[int, Sequence[Any]]]
#: The sources and their topics. `clicks` and `listed` have all records of an id in one partition.
SOURCES = {"clicks": ("clicks",), "shown": ("shown",), "listed": ("more", "extra")}
KEYED = ("clicks", "listed")
SCHEMA = "id STRING NOT NULL, at TIMESTAMP, n INT"
DELAYS_S = (3, 6, 10)


@dataclass(kw_only=True)
class Processor:
    """A processor of a program.

    Args: check: of its results. "ordered": those of an id are a sequence; "set": they have no order; "counted": they
        number the expected rows of an id, see `counted`.
    """

    name: str
    reads: tuple[str, ...]
    text: str
    declare: Callable[..., Any]
    model: Callable[["Inputs", Outcome], list[Row]]
    check: str
    engine: Literal["live", "micro-batch"] | None = "live"
    policy: Any = field(default_factory=lambda: fk.Lazy("3 seconds"))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.reads)}) {self.engine} {self.policy}: {self.text} [{self.check}]"


@dataclass(kw_only=True)
class Inputs:
    """What processors read. Args: records: by topic and partition. outcomes: of the processors before."""

    records: Records
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def parsed(self, source: str, found: Outcome) -> list[dict[int, list[Row]]]:
        """Return the rows of each topic of a source."""
        return [models.parsed(self.records[topic], topic, found) for topic in SOURCES[source]]

    def read(self, source: str, links: Sequence[Any], found: Outcome) -> list[Row]:
        """Return the results of a chain of links over a source or another processor."""
        if source not in SOURCES:
            return models.read({0: self.outcomes[source].rows}, links, found)
        return [row for each in self.parsed(source, found) for row in models.read(each, links, found)]


def _declared(steps: Sequence[Step]) -> Callable[[Any], Any]:
    def declare(stream: Any) -> Any:
        for _, step, _ in steps:
            stream = step(stream)
        return stream

    return declare


def _text(steps: Sequence[Step]) -> str:
    return " > ".join(text for text, _, _ in steps) or "nothing"


def _links(steps: Sequence[Step]) -> list[Any]:
    return [link for _, _, link in steps]


def _some(random: Random, of: Sequence[Step], most: int) -> list[Step]:
    return random.sample(of, random.randrange(most + 1))


def _policy(random: Random, *more: Any) -> Any:
    return random.choice([fk.Lazy(f"{random.choice([2, 3, 5])} seconds"), fk.Lazy("4 seconds"), *more])


def _pipeline(name: str, source: str, steps: Sequence[Step], check: str, **more: Any) -> Processor:
    links, declare = _links(steps), _declared(steps)
    return Processor(
        name=name, reads=(source,), text=_text(steps), declare=declare, check=check,
        model=lambda inputs, found: inputs.read(source, links, found), **more,
    )  # fmt: skip


# -- kinds of processors ----------------------------------------------------------------------------------------------


def chain(random: Random, name: str) -> Processor:
    """Return one to five keyed steps in a row, of which none needs a hop."""
    before, keyed, needs_time = _some(random, KEEPING, 2), list[Step](), False
    for _ in range(random.choice([0, 1, 1, 2])):
        keyed += [first(random), *_some(random, SIMPLE, 1)]
        needs_time = True
    if has_window := random.random() < 0.4:
        keyed += [window(random), *_some(random, SIMPLE, 1)]
    totals = random.choice([0, 0, 1, 2])
    for _ in range(totals):
        keyed += [TOTALS, *_some(random, SIMPLE, 1)]
    if random.random() < 0.5 or not keyed:
        state = python_state(random, timed=not has_window and not totals)
        needs_time |= state[0] != "state plain"
        if state[0] == "state plain" and random.random() < 0.5:
            keyed += [STATE_BY_KEY, *_some(random, SIMPLE, 1), random.choice([TOTALS, STATE_BY_KEY])]
        else:
            keyed += [state]
    if needs_time or has_window:
        before.insert(random.randrange(len(before) + 1), timed(random.choice(DELAYS_S)))
    steps = [*before, *keyed, *_some(random, AFTER, 2)]
    # In micro-batches there is no groupBy, and a UDF that fails ends the epoch.
    is_live = len(keyed) > 1 or keyed[0] == TOTALS or any(text == "failing udf" for text, _, _ in steps)
    engine = "live" if random.random() < 0.8 or is_live else "micro-batch"
    several = [fk.Lazy("5 seconds", twins=True), fk.Snapshots("3 seconds")] if engine == "live" else []
    one = [fk.LogSends("3 seconds")] if several and keyed[0] == TOTALS and len(keyed) == 1 else []
    return _pipeline(name, "clicks", steps, "ordered", engine=engine, policy=_policy(random, *several, *one))


def rows(random: Random, name: str) -> Processor:
    """Return steps without a state over any source."""
    source = random.choice([*SOURCES])
    policies = [fk.Ephemeral(), fk.Snapshots("3 seconds"), fk.LogSends("3 seconds")]
    return _pipeline(name, source, _some(random, AFTER, 3), "set", policy=_policy(random, *policies))


def listed(random: Random, name: str) -> Processor:
    """Return a state over a list of topics. That of Python gets a hop, which keeps the order of an id."""
    keyed = random.choice([TOTALS, TOTALS, python_state(random, timed=False)])
    steps = [*_some(random, SIMPLE, 2), keyed, *_some(random, AFTER, 1)]
    return _pipeline(name, "listed", steps, "ordered", policy=_policy(random))


def hop(random: Random, name: str) -> Processor:
    """Return a count by a key whose records are in all partitions."""
    steps = _some(random, AFTER, 2)
    return with_count(_pipeline(name, "shown", steps, "counted", policy=_policy(random)))


def union(random: Random, name: str) -> Processor:
    """Return a union of two sources. A count may follow it."""
    sources = random.sample([*SOURCES], 2)
    sides, after = [_some(random, AFTER, 1) for _ in sources], _some(random, AFTER, 1)
    declares, all_after = [_declared(side) for side in sides], _declared(after)

    def declare(one: Any, other: Any) -> Any:
        return all_after(declares[0](one).union(declares[1](other)))

    def model(inputs: Inputs, found: Outcome) -> list[Row]:
        both = zip(sources, sides, strict=True)
        return [row for source, side in both for row in inputs.read(source, _links([*side, *after]), found)]

    made = Processor(
        name=name, reads=(*sources,), text=f"{' union '.join(f'({_text(side)})' for side in sides)} > {_text(after)}",
        declare=declare, model=model, check="set", policy=_policy(random),
    )  # fmt: skip
    return with_count(made) if random.random() < 0.5 else made


def with_count(of: Processor) -> Processor:
    """Return the processor with a count by id after its steps."""
    declare = of.declare

    def counted(*streams: Any) -> Any:
        return declare(*streams).groupBy("id").agg(
            F.count("*").alias("version"), F.sum("n").alias("total"), fk.latest_value("n")
        )  # fmt: skip

    of.declare, of.check, of.text = counted, "counted", f"{of.text} > counted"
    return of


def order(random: Random, name: str) -> Processor:
    """Return a state whose function gets the records of a key in the order of their times."""
    before, after = _some(random, KEEPING, 2), _some(random, AFTER, 2)
    before.insert(random.randrange(len(before) + 1), timed(random.choice(DELAYS_S)))
    source = random.choice(["clicks", "shown"])

    def declare(stream: Any) -> Any:
        kept = _declared(before)(stream).stateful(
            chained.chained, key="id", state="seen INT", returns=chained.RETURNS, order="at"
        )
        return _declared(after)(kept)

    def model(inputs: Inputs, found: Outcome) -> list[Row]:
        fitting, least = models.fitting(inputs.parsed(source, found)[0], _links(before), found)
        state, results = States(chained.chained), list[Row]()
        for _, row in sorted(fitting, key=lambda each: (each[1].time, each[0])):
            if row.time < least:
                results += state.take(row)
        return models.read({0: results}, _links(after), found)

    return Processor(
        name=name, reads=(source,), text=f"{_text(before)} > state order > {_text(after)}", declare=declare,
        model=model, check="ordered", policy=_policy(random),
    )  # fmt: skip


def _sides(random: Random) -> tuple[list[str], list[list[Step]]]:
    sources, sides = random.sample(["clicks", "shown"], 2), []
    for _ in sources:
        side = _some(random, SIMPLE, 1)
        sides.append([timed(random.choice(DELAYS_S)), *side])
    return sources, sides


BOTH = "CAST(coalesce(n, -1) * 20011L + coalesce(right_n, -3) AS INT) AS n"


def _paired(left: Row | None, right: Row | None) -> Row:
    known = left or right
    assert known is not None
    number = (-1 if left is None else left.n) * 20_011 + (-3 if right is None else right.n)
    return Row(known.id, known.at, number, known.place)


def join(random: Random, name: str) -> Processor:
    """Return a join of two topics by an interval."""
    sources, sides = _sides(random)
    how, within_s = random.choice(["inner", "left", "right", "full"]), random.choice([2, 4, 7])
    before_s, after = random.choice([0, within_s]), _some(random, SIMPLE[:1], 1)
    left, right = sources
    condition = (
        f"{left}.id = {right}.id AND {right}.at >= {left}.at - INTERVAL {before_s} SECONDS "
        f"AND {right}.at <= {left}.at + INTERVAL {within_s} SECONDS"
    )

    def declare(one: Any, other: Any) -> Any:
        one, other = _declared(sides[0])(one), _declared(sides[1])(other)
        if before_s:
            found = one.join(other, "id", how, within=f"{within_s} seconds")
            found = found.selectExpr("id", "coalesce(at, right_at) AS at", BOTH)
        else:
            found = one.join(other, F.expr(condition), how)
            found = found.selectExpr("coalesce(id, right_id) AS id", "coalesce(at, right_at) AS at", BOTH)
        return _declared(after)(found)

    def model(inputs: Inputs, found: Outcome) -> list[Row]:
        lefts, rights = (
            [row for _, row in models.fitting(inputs.parsed(source, found)[0], _links(side), found)[0]]
            for source, side in zip(sources, sides, strict=True)
        )
        of_id: dict[str, list[int]] = {}
        for number, row in enumerate(rights):
            of_id.setdefault(row.id, []).append(number)
        results, met = list[Row](), set[int]()
        for row in lefts:
            partners = [
                number
                for number in of_id.get(row.id, ())
                if -before_s <= (rights[number].time - row.time).total_seconds() <= within_s
            ]
            results += [_paired(row, rights[number]) for number in partners]
            met.update(partners)
            if not partners and how in ("left", "full") and row.time < END:
                results.append(_paired(row, None))
        if how in ("right", "full"):
            alone = (row for number, row in enumerate(rights) if number not in met and row.time < END)
            results += [_paired(None, row) for row in alone]
        return models.read({0: results}, _links(after), found)

    text = f"({_text(sides[0])}) {how} join ({_text(sides[1])}) -{before_s}..{within_s} > {_text(after)}"
    return Processor(
        name=name, reads=(*sources,), text=text, declare=declare, model=model, check="set", policy=_policy(random)
    )


def asof(random: Random, name: str) -> Processor:
    """Return an as-of join."""
    sources, sides = _sides(random)
    how, tolerance_s = random.choice(["inner", "left"]), random.choice([None, 5])
    more = {} if tolerance_s is None else {"tolerance": f"{tolerance_s} seconds"}

    def declare(one: Any, other: Any) -> Any:
        found = _declared(sides[0])(one).join_asof(_declared(sides[1])(other), "id", how, **more)
        return found.selectExpr("id", "at", BOTH)

    def model(inputs: Inputs, found: Outcome) -> list[Row]:
        (lefts, _), (rights, least) = (
            models.fitting(inputs.parsed(source, found)[0], _links(side), found)
            for source, side in zip(sources, sides, strict=True)
        )
        of_id: dict[str, list[Any]] = {}
        for place, row in rights:
            of_id.setdefault(row.id, []).append((row.time, place, row))
        results = []
        for _, row in lefts:
            past = [each for each in of_id.get(row.id, ()) if each[0] <= row.time]
            newest = max(past, key=lambda each: each[:2])[2] if past else None
            if newest is not None and tolerance_s is not None:
                newest = newest if row.time - newest.time <= timedelta(seconds=tolerance_s) else None
            if row.time < least and (newest is not None or how == "left"):
                results.append(_paired(row, newest))
        return results

    text = f"({_text(sides[0])}) {how} as-of join ({_text(sides[1])}) tolerance {tolerance_s}"
    return Processor(
        name=name, reads=(*sources,), text=text, declare=declare, model=model, check="set", policy=_policy(random)
    )


def reader(random: Random, name: str, of: Processor) -> Processor:
    """Return a processor that reads a live one: live, with a count, in micro-batches, or in small epochs."""
    kind = random.choice(["live", "counted", "micro-batch", "eager"])
    if kind == "eager":
        steps = _some(random, SIMPLE[:2], 2)
        return _pipeline(name, of.name, steps, "set", engine=None, policy=fk.Eager())
    steps = _some(random, {"live": AFTER, "counted": KEEPING, "micro-batch": [*AFTER[:4], *AFTER[5:]]}[kind], 2)
    engine = "micro-batch" if kind == "micro-batch" else "live"
    made = _pipeline(name, of.name, steps, "set", engine=engine, policy=_policy(random))
    return with_count(made) if kind == "counted" else made


KINDS = (chain, join, order, union, listed, asof, hop, rows, chain)


def program(seed: int) -> list[Processor]:
    """Return the processors of a program: three that read sources, and one or two that read those."""
    random = Random(f"program {seed}")
    kinds = [KINDS[seed % len(KINDS)], *random.choices(KINDS, k=2)]
    found = [kind(random, f"p{number}") for number, kind in enumerate(kinds)]
    for number in range(random.choice([1, 1, 2])):
        fit = [each for each in found[:3] if each.check != "counted" and each.engine == "live"]
        if fit:
            found.append(reader(random, f"r{number}", random.choice(fit)))
    return found


def declare(app: fk.App, processors: Sequence[Processor], topic: Callable[[str], str]) -> None:
    """Declare the sources, processors and sinks of a program. Args: topic: returns the name of a topic."""
    for source, topics in SOURCES.items():
        if any(source in each.reads for each in processors):
            names = [topic(each) for each in topics]
            key = "id" if source in KEYED else None
            app.source(source, fk.Kafka(names if len(names) > 1 else names[0], schema=SCHEMA, key=key))
    for each in processors:
        app.add_processor(each.name, each.declare, reads=each.reads, policy=each.policy, engine=each.engine)
        app.sink(f"{each.name}-sink", each.name, fk.Kafka(topic(each.name), key="id"))


def topics_of_sources(processors: Sequence[Processor]) -> list[str]:
    """Return the topics that a program reads."""
    return [t for source, topics in SOURCES.items() if any(source in p.reads for p in processors) for t in topics]


def outcomes(processors: Sequence[Processor], records: Records) -> dict[str, Outcome]:
    """Return the expected results of each processor."""
    inputs = Inputs(records=records)
    for each in processors:
        found = Outcome()
        found.rows = each.model(inputs, found)
        inputs.outcomes[each.name] = found
    return inputs.outcomes


def is_fenced(seed: int) -> bool:
    """Return whether all sinks of a program are transactional."""
    return seed % 3 == 1
