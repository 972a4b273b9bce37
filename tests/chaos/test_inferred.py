"""What is inferred to be exactly-once is so: applications drawn from seeds, killed at moments drawn from seeds, and
judged from their topics alone."""

import json
import os
import random
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from falkirk.check import AggregateModel, Count, Guarantee, Input, Latest, Place, check_keyed, outputs_of, read_topic
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics
from tests.chaos.harness import APPS, Application, Load
from tests.support import wait_until

#: More of them, as in FALKIRK_SEEDS=1,2,3, are a soak.
SEEDS = [int(s) for s in os.environ.get("FALKIRK_SEEDS", "1").split(",")]
SINKS = ("rows", "parts", "held", "hopped")
DRAWN = {"lot", "chain"}


class Events(Load):
    """Events, each with an id of its own; a word's are in one partition."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        word = f"w{self._random.randrange(10)}"
        return word, {"id": f"e{number}", "word": word, "n": number}


class Run:
    """The topics of one application."""

    def __init__(self, bootstrap: str, tag: str) -> None:
        self._config, self._tag, self.topics = {"bootstrap.servers": bootstrap}, tag, Topics(Connection.of(bootstrap))
        for name, partitions in (("events", 2), *((sink, 2) for sink in SINKS)):
            self.topics.create(f"{name}-{tag}", partitions, {})

    def records(self, name: str) -> list[Any]:
        return list(read_topic(self._config, f"{name}-{self._tag}"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(record.value) for record in self.records(name)]

    def count(self, name: str) -> int:
        return sum(self.topics.end_positions(f"{name}-{self._tag}").values())

    def has_more(self, before: dict[str, int], more: int) -> bool:
        """Whether so many results more are out, where they leave on arrival."""
        return all(self.count(name) > before[name] + more for name in ("rows", "hopped"))

    def is_complete(self) -> bool:
        """Whether there are as many results as there have to be."""
        return all(self.count(name) >= len(passed(self, name)) * (3 if name == "parts" else 1) for name in SINKS)

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
    some = {i for i, n in everything.items() if n % 5}
    there = {row["id"] for row in run.rows(name)} if name in ("rows", "parts") else set()
    numbers = {row["n"] for row in run.rows(name)}
    left_out = not any(n % 5 == 0 for n in numbers)
    assert there <= set(everything)
    return some if left_out else set(everything)


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


def _without_draws(value: bytes) -> bytes:
    return json.dumps({k: v for k, v in json.loads(value).items() if k not in DRAWN}).encode()


@contextmanager
def tormented(broker: Broker, home: Path, tag: str, seed: int, **more: str) -> Iterator[Run]:
    """Run the seed's application under load, kill it twice, and wait until all its results are there."""
    draw, run = random.Random(seed), Run(broker.bootstrap, tag)
    env = {"DRAWN_SEED": str(seed), "DRAWN_TAG": tag, "DRAWN_BROKER": broker.bootstrap, "DRAWN_HOME": str(home), **more}
    application = Application(APPS / "drawn.py", broker.bootstrap, home, env)
    application.start()
    try:
        with Events(broker.bootstrap, f"events-{tag}", rate=100.0, seed=seed) as load:
            for _ in range(2):
                application.wait_committed(1)
                before, more_results = {name: run.count(name) for name in SINKS}, draw.randint(50, 400)
                wait_until(
                    partial(run.has_more, before, more_results), 180, f"{more_results} more\n{application.log()}"
                )  # fmt: skip
                if draw.random() < 0.5:
                    application.kill_everything()
                else:
                    application.host().kill()
                    application.forget_status()
            application.wait_committed(1)
            assert application.suppressed() > 0, "a replay made nothing again, so nothing was tested"
        wait_until(run.is_complete, 180, f"all results of {load.sent} events\n{application.log()}")
        application.wait_next_commit()
        yield run
    finally:
        application.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_inferred_exactly_once_is_caught(broker: Broker, home: Path, tag: str, seed: int) -> None:
    with tormented(broker, home, tag, seed) as run:
        judge_rows(run, "rows", 1)
        judge_rows(run, "parts", 3)
        judge_chain(run, "held")
        judge_chain(run, "hopped")


def test_a_word_that_is_wrong_is_caught(broker: Broker, home: Path, tag: str) -> None:
    """The same, but for a user who says that it is all deterministic: then nothing is held back."""
    with tormented(broker, home, tag, SEEDS[0], DRAWN_LIE="1") as run:
        judge_rows(run, "rows", 1)
        with pytest.raises(AssertionError, match="contradicts"):
            judge_chain(run, "held")
