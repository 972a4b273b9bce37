"""What is inferred to be exactly-once is so: applications drawn from seeds, killed at moments drawn from seeds, and
judged from their topics alone."""

import itertools
import json
import os
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.check import AggregateModel, Count, Guarantee, Input, Latest, Place, check_keyed, outputs_of, read_topic
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics
from tests.chaos.harness import APPS, Application, Load
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: More of them, as in FALKIRK_SEEDS=1,2,3, are a soak.
SEEDS = [int(s) for s in os.environ.get("FALKIRK_SEEDS", "1").split(",")]
KILLS = 2 if "FALKIRK_SEEDS" in os.environ else 1
#: So many results of what is vouched for must have come since its checkpoint when it is killed, to be contradicted.
UNSAVED = 5
#: Four processors of epochs keep two processors of the machine busy for minutes.
soak = pytest.mark.skipif("FALKIRK_SEEDS" not in os.environ, reason="a soak: it runs with FALKIRK_SEEDS alone")
LIVE, EPOCHS = ("rows", "parts", "held", "hopped", "believed"), ("lots", "sums", "kept", "folded", "believed")
DRAWN = {"lot", "chain"}


class Events(Load):
    """Events, each with an id of its own; a word's are in one partition."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        word = f"w{self._random.randrange(10)}"
        return word, {"id": f"e{number}", "word": word, "n": number}


class Run:
    """The topics of one application."""

    def __init__(self, bootstrap: str, tag: str, sinks: tuple[str, ...], begun: Path) -> None:
        self._config, self._tag, self.topics = {"bootstrap.servers": bootstrap}, tag, Topics(Connection.of(bootstrap))
        self.sinks, self.prompt = sinks, {"rows", "hopped", "lots", "believed"}
        self._read: dict[str, list[Any]] = {}
        self._begun, self._held = begun, Path(f"{begun}.held")
        #: What `falkirk plan` says of each of them.
        self.promises: dict[str, dict[str, Any]] = {}
        for name in ("events", *sinks):
            self.topics.create(f"{name}-{tag}", 2, {})

    def records(self, name: str) -> list[Any]:
        """Return what is in a topic; it is read again only when it has grown: the application needs the processors."""
        there = self.count(name)
        if len(self._read.get(name, ())) != there:
            self._read[name] = list(read_topic(self._config, f"{name}-{self._tag}"))
        return self._read[name]

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(record.value) for record in self.records(name)]

    def count(self, name: str) -> int:
        return sum(self.topics.end_positions(f"{name}-{self._tag}").values())

    def has_more(self, before: dict[str, int], more: int) -> bool:
        """Whether so many results more are out, where each record's leave without waiting for others."""
        return all(self.count(name) > before[name] + more for name in self.sinks if name in self.prompt)

    def await_unsaved(self, name: str, application: Application) -> None:
        """Wait until a live region, which is called after its sink, has released results since its last checkpoint."""
        seen = (-1, 0)

        def is_beyond() -> bool:
            nonlocal seen
            commit = application.last_commits().get(f"{name}-sink", -1)
            if commit != seen[0]:
                seen = commit, self.count(name)
            return commit >= 0 and self.count(name) > seen[1] + UNSAVED

        wait_until(is_beyond, 60, lambda: f"results of {name} behind checkpoint {seen}\n{application.log()}")

    def begun(self) -> dict[tuple[str, str], set[str]]:
        """Return by which processes each epoch was begun."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for line in self._begun.read_text().splitlines() if self._begun.exists() else ():
            name, number, process = line.split()
            found[name, number].add(process)
        return found

    def hold_an_epoch(self) -> None:
        """Wait until an epoch is begun that does not come to an end, so that a kill cuts it off for certain."""
        self._held.touch()
        before = len(self.begun())
        wait_until(lambda: len(self.begun()) > before, 60, "an epoch to be begun")

    def let_go(self) -> None:
        """Let epochs come to an end again."""
        self._held.unlink(missing_ok=True)

    def done_again(self) -> list[tuple[str, str]]:
        """Return the epochs that were begun by one process, and again by another."""
        return [epoch for epoch, processes in self.begun().items() if len(processes) > 1]

    def is_complete(self) -> bool:
        """Whether there are as many results as there have to be."""
        return all(self._found(name) >= self._expected(name) for name in self.sinks)

    def found(self) -> dict[str, tuple[int, int]]:
        """Return how many results each sink has, and how many it has to have."""
        return {name: (self._found(name), self._expected(name)) for name in self.sinks}

    def kept(self) -> list[str]:
        """Return the ids of the events that are kept."""
        return [one.partition("=")[0] for row in self.newest("kept").values() for one in row["ones"]]

    def _found(self, name: str) -> int:
        if name == "sums":
            return sum(row["version"] for row in self.newest(name).values())
        return len(self.kept()) if name == "kept" else self.count(name)

    def _expected(self, name: str) -> int:
        return self._expected("lots") if name == "sums" else len(passed(self, name)) * self.parts(name)

    def parts(self, name: str) -> int:
        """Return how many results each event has."""
        return max((row.get("part", 0) for row in self.rows(name)), default=0) + 1

    def newest(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the last result of each word."""
        ordered = sorted(self.records(name), key=lambda r: (r.partition, r.offset))
        return {row["word"]: row for row in (json.loads(record.value) for record in ordered)}

    def inputs(self, only: set[str]) -> list[Input]:
        """Return the events with these ids, as the checker takes them."""
        found = []
        for record in self.records("events"):
            row = json.loads(record.value)
            if row["id"] in only:
                place = Place(record.topic, record.partition, record.offset)
                found.append(Input(key=row["word"], place=place, row=row))
        return found


def passed(run: Run, name: str) -> set[str]:
    """Return the ids of the events that get to a sink: where the application leaves some out, it is by their number."""
    everything = {row["id"]: row["n"] for row in run.rows("events")}
    ids = run.kept() if name == "kept" else [f"e{row['n']}" for row in run.rows(name)]
    assert set(ids) <= set(everything)
    some = {i for i, n in everything.items() if n % 5}
    return some if set(ids) <= some else set(everything)


def judge_rows(run: Run, name: str, parts: int) -> None:
    """Each event that gets there has each of its results once, and they share what was drawn."""
    expected, lots = passed(run, name), defaultdict(list)
    for row in run.rows(name):
        lots[row["id"]].append((row.get("part", 0), row["lot"]))
    assert set(lots) == expected, f"{name}: {len(expected - set(lots))} lost"
    for event, found in lots.items():
        assert sorted(part for part, _ in found) == list(range(parts)), f"{name}: {event} has {found}"
        assert len({lot for _, lot in found}) == 1, f"{name}: the results of {event} disagree: {found}"


def judge_chain(run: Run, name: str) -> None:
    """Versions as the checker has them; and each result follows from the one before, so that none was contradicted."""
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


def judge_behind(run: Run) -> None:
    """A batch has seen nothing of a live region that was taken back later: its results are among those of that one."""
    held = {(row["word"], row["version"]): row["chain"] for row in run.rows("held")}
    rows = run.rows("behind")
    assert rows
    for row in rows:
        assert held[row["word"], row["version"]] == row["chain"], f"behind: {row} contradicts what it rests on"
    assert len({(row["word"], row["epoch"]) for row in rows}) == len(rows), "an epoch is there twice"


def judge_sums(run: Run) -> None:
    """What was added up is, after each epoch, what the epochs before it have drawn, each once; none is told twice."""
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
    """What was once told is part of all that is told later, and each event is in it once."""
    for word, rows in by_word(run, "kept").items():
        assert_epochs_once(rows)
        for before, after in itertools.pairwise(rows):
            assert set(before["ones"]) <= set(after["ones"]), f"kept: {word} contradicts at {after['epoch']}"
    assert Counter(run.kept()) == Counter(passed(run, "kept"))


def by_word(run: Run, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each word in the order of their partition."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in sorted(run.records(name), key=lambda r: (r.partition, r.offset)):
        row = json.loads(record.value)
        found[row["word"]].append(row)
    return found


def assert_epochs_once(rows: list[dict[str, Any]]) -> None:
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(set(epochs)), "an epoch was told twice, or after a later one"


def _without_draws(value: bytes) -> bytes:
    return json.dumps({k: v for k, v in json.loads(value).items() if k not in DRAWN}).encode()


@contextmanager
def tormented(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, seed: int, sinks: tuple[str, ...] = LIVE, *,
    kills: int = KILLS, **more: str,
) -> Iterator[Run]:  # fmt: skip
    """Run the seed's application under load, kill it, and wait until all its results are there."""
    begun = home.with_name("begun")
    draw, run = random.Random(seed), Run(broker.bootstrap, tag, sinks, begun)
    env = {"DRAWN_SEED": str(seed), "DRAWN_TAG": tag, "DRAWN_BROKER": broker.bootstrap, "DRAWN_HOME": str(home), **more}
    run.prompt |= {"held", "folded"} if "DRAWN_LIE" in more else set()
    env["DRAWN_KIND"] = "live" if sinks is LIVE else "epochs"
    env |= {"DRAWN_SINKS": " ".join(sinks), "DRAWN_BEGUN": str(begun)}
    application = Application(APPS / "drawn.py", broker.bootstrap, home, env)
    run.promises = application.promises(spark)
    application.start()
    try:
        # Each epoch takes its time, however little is in it: fewer events, so that all of it comes to an end.
        rate, most = (100.0, 400) if sinks is LIVE else (30.0, 150)
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
                load.rate = rate / 10  # or what has to be worked off is the more, the slower the machine starts it
            application.wait_committed(1)
            assert sinks is not LIVE or application.suppressed() > 0, "a replay made nothing again: nothing was tested"
        wait_until(
            run.is_complete, 180,
            lambda: f"all results of {load.sent} events: {run.found()}; {application.status()}\n{application.log()}",
        )  # fmt: skip
        if sinks is LIVE:  # where nothing comes no further epoch is complete
            application.wait_next_commit()
        yield run
    finally:
        application.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_inferred_exactly_once_is_caught_and_a_wrong_word_is(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, seed: int
) -> None:
    """One processor is vouched for by a user who is wrong: nothing of it is held back, and the same kills show it."""
    with tormented(spark, broker, home, tag, seed) as run:
        judge_rows(run, "rows", 1)
        judge_rows(run, "parts", 3)
        judge_chain(run, "held")
        judge_chain(run, "hopped")
        judge_behind(run)
        told = {name: run.promises[f"{name}-sink"] for name in (*LIVE, "behind")}
        assert {promise["delivery"] for promise in told.values()} == {"exactly-once"}
        assert {name for name, promise in told.items() if promise["awaits"]} == {"parts", "held", "behind"}
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "believed")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_epoch_inferred_exactly_once_is_caught_and_a_wrong_word_is(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, seed: int
) -> None:
    with tormented(spark, broker, home, tag, seed, EPOCHS) as run:
        judge_rows(run, "lots", run.parts("lots"))
        judge_sums(run)
        judge_kept(run)
        judge_chain(run, "folded")
        assert run.done_again(), "no epoch was done again: nothing was tested"
        told = {name: run.promises[f"{name}-sink"] for name in EPOCHS}
        assert {promise["delivery"] for promise in told.values()} == {"exactly-once"}
        assert {name: p["awaits"] for name, p in told.items() if p["awaits"]} == {"folded": ["folded"]}
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "believed")


@soak
def test_a_word_that_is_wrong_of_epochs_is_caught(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> None:
    """A state that is drawn, and not saved at each epoch, is drawn again; what was told of it is contradicted."""
    with tormented(spark, broker, home, tag, SEEDS[0], EPOCHS, DRAWN_LIE="1") as run:
        judge_rows(run, "lots", run.parts("lots"))  # each epoch is drawn once, whatever anybody says
        judge_kept(run)  # what it keeps is what it has told
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "folded")
