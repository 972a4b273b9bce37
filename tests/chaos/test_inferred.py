"""Outputs inferred as exactly-once are exactly-once: random applications are killed at random moments.

The results are judged only from the topics. Seeds determine both the applications and the moments. The kills are a
soak: `integration/epochs/test_inferred_epochs.py` interrupts an application of epochs in the session of the tests, with
the same judges, and test_mechanisms.py kills each mechanism of live regions.
"""

import itertools
import json
import os
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from falkirk.checker import (
    AggregateModel,
    Count,
    Guarantee,
    InputRow,
    Latest,
    RowPlace,
    check_keyed,
    outputs_of,
    read_topic,
)
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Application, Load
from tests.chaos.shapes import (
    EXTRA,
    HOPPED,
    Shapes,
    expected_of_extra,
    found_of_extra,
    judge_extra,
    judge_regrouped,
)
from tests.support import wait_until

#: More seeds, as in FALKIRK_SEEDS=1,2,3, make a soak.
SEEDS = [int(s) for s in os.environ.get("FALKIRK_SEEDS", "1").split(",")]
KILLS = 2 if "FALKIRK_SEEDS" in os.environ else 1
#: An asserted processor must have this many results after its checkpoint when it is killed, so that some are
#: contradicted.
UNSAVED = 5
soak = pytest.mark.skipif("FALKIRK_SEEDS" not in os.environ, reason="a soak: it runs with FALKIRK_SEEDS alone")
LIVE = ("rows", "parts", "held", "hopped", "believed")
EPOCHS = ("lots", "sums", "kept", "folded", "believed", *(("extra",) if "FALKIRK_SEEDS" in os.environ else ()))
DRAWN = {"lot", "chain"}


class Events(Load):
    """Events with unique ids; all events of a word are in one partition."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        word = f"w{self._random.randrange(10)}"
        return word, {"id": f"e{number}", "word": word, "n": number, "at": datetime.now(UTC).isoformat()}


class Run:
    """The topics of one application."""

    def __init__(self, bootstrap: str, tag: str, sinks: tuple[str, ...], begun: Path, shapes: Shapes) -> None:
        self.shapes = shapes
        self._config, self._tag, self.topics = {"bootstrap.servers": bootstrap}, tag, Topics(Connection.of(bootstrap))
        self.sinks, self.prompt = sinks, {"rows", "hopped", "lots", "believed"}
        self._read: dict[str, list[Any]] = {}
        self._ends: dict[str, int] = {}
        self._parsed: dict[str, list[dict[str, Any]]] = {}
        self._begun, self._held = begun, Path(f"{begun}.held")
        #: The promises of each sink in `falkirk plan`.
        self.promises: dict[str, dict[str, Any]] = {}
        for name in ("events", *sinks):
            self.topics.create(f"{name}-{tag}", 2, {})

    def records(self, name: str) -> list[Any]:
        """Return the records of a topic. To spare the processors, they are read again only when it has grown."""
        there = self.count(name)  # more than there are records, if the topic has markers of transactions
        if self._ends.get(name) != there:
            self._read[name] = list(read_topic(self._config, f"{name}-{self._tag}"))
            self._ends[name] = there
        return self._read[name]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the values of a topic, which are parsed again only when it has grown."""
        records = self.records(name)
        if len(self._parsed.get(name, ())) != len(records):
            self._parsed[name] = [json.loads(record.value) for record in records]
        return self._parsed.get(name, [])

    def count(self, name: str) -> int:
        return sum(self.topics.end_positions(f"{name}-{self._tag}").values())

    def has_more(self, before: dict[str, int], more: int) -> bool:
        """Return whether this many more results are published in each sink that publishes on arrival."""
        return all(self.count(name) > before[name] + more for name in self.sinks if name in self.prompt)

    def await_unsaved(self, name: str, application: Application) -> None:
        """Wait until a live region, which is named after its sink, has published results after its last checkpoint."""
        seen = (-1, 0)

        def is_beyond() -> bool:
            nonlocal seen
            commit = application.last_commits().get(f"{name}-sink", -1)
            if commit != seen[0]:
                seen = commit, self.count(name)
            return commit >= 0 and self.count(name) > seen[1] + UNSAVED

        wait_until(is_beyond, 60, lambda: f"results of {name} after checkpoint {seen}\n{application.log()}")

    def begun(self) -> dict[tuple[str, str], set[str]]:
        """Return, for each epoch, the processes that started it."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for line in self._begun.read_text().splitlines() if self._begun.exists() else ():
            name, number, process = line.split()
            found[name, number].add(process)
        return found

    def hold_an_epoch(self) -> None:
        """Wait until an epoch has started that can't finish, so that a kill certainly interrupts it."""
        self._held.touch()
        before = len(self.begun())
        wait_until(lambda: len(self.begun()) > before, 60, "an epoch to start")

    def let_go(self) -> None:
        """Allow epochs to finish again."""
        self._held.unlink(missing_ok=True)

    def done_again(self) -> list[tuple[str, str]]:
        """Return the epochs that two processes started, one after the other."""
        return [epoch for epoch, processes in self.begun().items() if len(processes) > 1]

    def is_complete(self) -> bool:
        """Return whether there are as many results as expected."""
        return all(self._found(name) >= self._expected(name) for name in self.sinks)

    def found(self) -> dict[str, tuple[int, int]]:
        """Return for each sink the number of results and the expected number."""
        return {name: (self._found(name), self._expected(name)) for name in self.sinks}

    def kept(self) -> list[str]:
        """Return the ids of the kept events."""
        return [one.partition("=")[0] for row in self.newest("kept").values() for one in row["ones"]]

    def _found(self, name: str) -> int:
        if name == "sums":
            return sum(row["version"] for row in self.newest(name).values())
        if name == "extra":
            return found_of_extra(self, self.shapes.extra)
        return len(self.kept()) if name == "kept" else self.count(name)

    def _expected(self, name: str) -> int:
        if name == "extra":
            return expected_of_extra(self, self.shapes.extra)
        return self._expected("lots") if name == "sums" else len(passed(self, name)) * self.parts(name)

    def parts(self, name: str) -> int:
        """Return how many results each event has."""
        return max((row.get("part", 0) for row in self.rows(name)), default=0) + 1

    def newest(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the last result of each word."""
        ordered = sorted(self.records(name), key=lambda r: (r.partition, r.offset))
        return {row["word"]: row for row in (json.loads(record.value) for record in ordered)}

    def inputs(self, only: set[str]) -> list[InputRow]:
        """Return the events with these ids, in the checker's form."""
        found = []
        for record in self.records("events"):
            row = json.loads(record.value)
            if row["id"] in only:
                place = RowPlace(record.topic, record.partition, record.offset)
                found.append(InputRow(key=row["word"], place=place, row=row))
        return found


def passed(run: Run, name: str) -> set[str]:
    """Return the ids of the events that reach a sink: if the application filters events, it does so by their number."""
    everything = {row["id"]: row["n"] for row in run.rows("events")}
    ids = run.kept() if name == "kept" else [f"e{row['n']}" for row in run.rows(name)]
    assert set(ids) <= set(everything)
    some = {i for i, n in everything.items() if n % 5}
    return some if set(ids) <= some else set(everything)


def judge_rows(run: Run, name: str, parts: int) -> None:
    """Check that each event at the sink has each result once, and that these share their random value."""
    expected, lots = passed(run, name), defaultdict(list)
    for row in run.rows(name):
        lots[row["id"]].append((row.get("part", 0), row["lot"]))
    assert set(lots) == expected, f"{name}: {len(expected - set(lots))} lost"
    for event, found in lots.items():
        assert sorted(part for part, _ in found) == list(range(parts)), f"{name}: {event} has {found}"
        assert len({lot for _, lot in found}) == 1, f"{name}: the results of {event} disagree: {found}"


def judge_chain(run: Run, name: str) -> None:
    """Check the versions with the checker, and that each result follows from the previous one."""
    model = AggregateModel(["word"], {"version": Count(), "n": Latest("n")})
    records = run.records(name)
    plain = (replace(record, value=_without_draws(record.value)) for record in records)
    outputs = outputs_of(plain, key=lambda record, values: values["word"])
    verdict = check_keyed(run.inputs(passed(run, name)), outputs, model)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, (name, verdict.anomalies)
    chains: dict[str, int] = defaultdict(int)
    for record in sorted(records, key=lambda r: (r.partition, r.offset)):
        row = json.loads(record.value)
        chains[row["word"]] += zlib.crc32(row["lot"].encode())
        assert row["chain"] == chains[row["word"]], f"{name}: version {row['version']} of {row['word']} contradicts"


def judge_hopped(run: Run) -> None:
    if run.shapes.hopped == "words":
        judge_chain(run, "hopped")
    else:
        judge_regrouped(run, run.shapes.hopped, passed(run, "hopped"))


def judge_behind(run: Run) -> None:
    """Check that a batch has read no result that its live region later cancelled: it read only published results."""
    held = {(row["word"], row["version"]): row["chain"] for row in run.rows("held")}
    rows = run.rows("behind")
    assert rows
    for row in rows:
        assert held[row["word"], row["version"]] == row["chain"], (
            f"behind: {row} contradicts the result that it depends on"
        )
    assert len({(row["word"], row["epoch"]) for row in rows}) == len(rows), "an epoch is in the topic twice"


def judge_sums(run: Run) -> None:
    """Check that each epoch's sums contain the random values of all earlier epochs once, and are published once."""
    drawn: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in run.rows("lots"):
        drawn[row["word"]].append((row["epoch"], zlib.crc32(row["lot"].encode())))
    for word, rows in by_word(run, "sums").items():
        assert_epochs_once(rows)
        for row in rows:
            chains = [crc for epoch, crc in drawn[word] if epoch <= row["upto"]]
            assert (row["version"], row["chain"]) == (len(chains), sum(chains)), f"sums: {word} contradicts: {row}"
        assert rows[-1]["version"] == len(drawn[word])


def judge_kept(run: Run) -> None:
    """Check that published results are part of all later ones, and that each event is in a result once."""
    for word, rows in by_word(run, "kept").items():
        assert_epochs_once(rows)
        for before, after in itertools.pairwise(rows):
            assert set(before["ones"]) <= set(after["ones"]), f"kept: {word} contradicts at {after['epoch']}"
    assert Counter(run.kept()) == Counter(passed(run, "kept"))


def by_word(run: Run, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each word, in the order of their partition."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in sorted(run.records(name), key=lambda r: (r.partition, r.offset)):
        row = json.loads(record.value)
        found[row["word"]].append(row)
    return found


def assert_epochs_once(rows: list[dict[str, Any]]) -> None:
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(set(epochs)), "an epoch was published twice, or after a later epoch"


def _without_draws(value: bytes) -> bytes:
    return json.dumps({k: v for k, v in json.loads(value).items() if k not in DRAWN}).encode()


@contextmanager
def tormented(
    broker: Broker, home: Path, tag: str, seed: int, sinks: tuple[str, ...] = LIVE, *,
    kills: int = KILLS, **more: str,
) -> Iterator[Run]:  # fmt: skip
    """Run the seed's application under load, kill it, and wait until all its results are published."""
    begun = home.with_name("begun")
    shapes = Shapes.of(seed)
    draw, run = random.Random(seed), Run(broker.bootstrap, tag, sinks, begun, shapes)
    print(f"seed {seed}: {shapes}")
    env = {"DRAWN_SEED": str(seed), "DRAWN_TAG": tag, "DRAWN_BROKER": broker.bootstrap, "DRAWN_HOME": str(home), **more}
    env |= shapes.environment()
    run.prompt |= {"held", "folded"} if "DRAWN_LIE" in more else set()
    env["DRAWN_KIND"] = "live" if sinks is LIVE else "epochs"
    env |= {"DRAWN_SINKS": " ".join(sinks), "DRAWN_BEGUN": str(begun)}
    application = Application(APPS / "drawn.py", broker.bootstrap, home, env)
    application.start()
    try:
        # Each epoch takes a minimum time even with little input, and each event costs live regions a flush. So there
        # are few events.
        rate, most = 30.0, 150
        with Events(broker.bootstrap, f"events-{tag}", rate=rate / 10, seed=seed) as load:
            for kill in range(kills):
                application.wait_committed(1)
                load.rate = rate
                before, more_results = {name: run.count(name) for name in sinks}, draw.randint(50, most)
                application.wait(partial(run.has_more, before, more_results), 180, f"{more_results} more")
                if sinks is EPOCHS and kill == kills - 1:
                    run.hold_an_epoch()
                if sinks is LIVE:
                    run.await_unsaved("believed", application)
                if draw.random() < 0.5:
                    application.kill_everything()
                else:
                    application.host().kill()
                    application.forget_status()
                run.let_go()
                load.rate = rate / 10  # otherwise a slow start leaves a larger backlog
            run.promises = application.promises()
            application.wait_committed(1)
            assert sinks is not LIVE or application.suppressed().total() > 0, (
                "no replay computed a result again: nothing was tested"
            )
        wait_until(
            run.is_complete, 180,
            lambda: f"all results of {load.sent} events: {run.found()}; {application.status()}\n{application.log()}",
        )  # fmt: skip
        if sinks is LIVE:  # without input no further epoch is complete
            application.wait_next_commit()
        yield run
    finally:
        application.stop()


def test_few_seeds_have_all_shapes() -> None:
    drawn = [Shapes.of(seed) for seed in range(1, 9)]
    assert {shapes.hopped for shapes in drawn} == {*HOPPED}
    assert {shapes.extra for shapes in drawn} == {*EXTRA}
    assert {name for shapes in drawn for name in shapes.vouched} == {"hopped", "extra"}
    assert any(shapes.vouched == () for shapes in drawn)


@soak
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_inferred_exactly_once_is_caught_and_a_wrong_word_is(
    broker: Broker, home: Path, tag: str, seed: int
) -> None:
    """One assertion of the user is wrong: results of that processor are not held, and the same kills show the fault."""
    with tormented(broker, home, tag, seed) as run:
        judge_rows(run, "rows", 1)
        judge_rows(run, "parts", 3)
        judge_chain(run, "held")
        judge_hopped(run)
        judge_behind(run)
        told = {name: run.promises[f"{name}-sink"] for name in (*LIVE, "behind")}
        assert {promise["delivery"] for promise in told.values()} == {"exactly-once"}
        assert {name for name, promise in told.items() if promise["awaits"]} == {"parts", "held", "behind"}
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "believed")


@soak
@pytest.mark.parametrize("seed", SEEDS)
def test_no_epoch_inferred_exactly_once_is_caught_and_a_wrong_word_is(
    broker: Broker, home: Path, tag: str, seed: int
) -> None:
    with tormented(broker, home, tag, seed, EPOCHS) as run:
        judge_rows(run, "lots", run.parts("lots"))
        judge_sums(run)
        judge_kept(run)
        judge_chain(run, "folded")
        if "extra" in EPOCHS:
            judge_extra(run, run.shapes.extra)
        assert run.done_again(), "no epoch was computed again: nothing was tested"
        told = {name: run.promises[f"{name}-sink"] for name in EPOCHS}
        assert {promise["delivery"] for promise in told.values()} == {"exactly-once"}
        assert {name: p["awaits"] for name, p in told.items() if p["awaits"]} == {"folded": ["folded"]}
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "believed")


@soak
def test_a_word_that_is_wrong_of_epochs_is_caught(broker: Broker, home: Path, tag: str) -> None:
    """A random state that is not saved at each epoch is computed again, and contradicts published results."""
    with tormented(broker, home, tag, SEEDS[0], EPOCHS, DRAWN_LIE="1") as run:
        judge_rows(run, "lots", run.parts("lots"))  # each epoch is computed once, for any declaration of the user
        judge_kept(run)  # its state equals its published results
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "folded")
