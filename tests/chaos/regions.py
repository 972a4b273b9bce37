"""Live regions of an application of apps/ under test: run, killed, and read. Each has its own output topic."""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from falkirk.checker import read_topic
from falkirk.spark_setup.broker import Broker
from tests import timers
from tests.chaos.harness import APPS, Application, Load, strike, topics_of
from tests.duplicates import BEGAN, DELAY_S
from tests.timers import Model

#: The faults that a verdict counts.
FAULTS = (
    "duplicates", "repeated_inputs", "lost", "unexplained", "broken_sequences", "partial", "forgotten", "undecided",
)  # fmt: skip
#: The verdict of a right run.
RIGHT = ("exactly-once", Counter[str]())


class Clicks(Load):
    """Clicks with times that go back by up to 13 seconds; all clicks of an id are in one partition."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        name = f"i{self._random.randrange(200)}"
        back_s = self._random.choice([0, 0, 0, 2, DELAY_S, DELAY_S + 3])
        at = BEGAN + timedelta(seconds=number / 20 - back_s)
        return name, {"id": name, "at": at.isoformat(), "n": number + 1}


@dataclass(frozen=True, kw_only=True)
class Regions:
    """Live regions under test. Args: topics: of each source and region. names: of the regions."""

    bootstrap: str
    application: Application
    topics: Mapping[str, str]
    names: Sequence[str]

    def count(self, name: str) -> int:
        """Return the number of records in the topic of a source or a region."""
        return sum(topics_of(self.bootstrap).end_positions(self.topics[name]).values())

    def rows(self, name: str) -> dict[int, list[dict[str, Any]]]:
        """Return the values in the topic of a source or a region, by partition and in order."""
        return self._read(self.topics[name])

    def results(self, name: str) -> list[dict[str, Any]]:
        """Return all values in the topic of a source or a region."""
        return [row for mine in self.rows(name).values() for row in mine]

    def letters(self, name: str) -> list[dict[str, Any]]:
        """Return all dead letters of a region."""
        return [row for mine in self._read(f"{self.topics[name]}.dead-letters").values() for row in mine]

    def strike(self, *, again: int, is_barred: bool = True, **env: str) -> Counter[str]:
        """Kill everything while each region has results behind a checkpoint; return the numbers of `strike`.

        Args: again: how often, at least. is_barred: each region must have dropped results that were published.
            env: further variables of the environment, from the first kill on.
        """
        return strike(
            self.application,
            lambda: self.application.wait_results_behind({name: partial(self.count, name) for name in self.names}),
            lambda checkpoints: self.application.kill_everything_behind(checkpoints, **env),
            lambda suppressed: not is_barred or all(suppressed[name] for name in self.names),
            again=again,
        )

    def verify(self, *names: str) -> dict[str, tuple[Any, Counter[str]]]:
        """Return for regions, by name, the verdict of `falkirk verify outputs` with the numbers of faults: those of its
        dead letters have names that begin with "letter"."""
        found = {}
        for name, verdict in self.application.verify(*names).items():
            assert verdict["guarantee"] is not None, verdict["reason"]
            faults = Counter({each: verdict["counts"][each] for each in FAULTS})
            letters = (verdict["dead_letters"] or {"counts": {}})["counts"]
            faults += Counter({f"letter {each}": letters.get(each, 0) for each in FAULTS})
            found[name] = verdict["guarantee"], faults
        return found

    def settle(self, due: Mapping[str, int]) -> None:
        """Wait until each of these regions has this number of results, and for another checkpoint then."""
        for name, number in due.items():
            self.application.wait(partial(self._has, name, number), 180, f"{number} results of {name}")
        self.application.wait_next_commit()

    def _has(self, name: str, number: int) -> bool:
        """Return whether a region has so many results. Offsets are quick to read, but count markers of transactions."""
        return self.count(name) >= number and len(self.results(name)) >= number

    def _read(self, topic: str) -> dict[int, list[dict[str, Any]]]:
        found = defaultdict(list)
        for record in read_topic({"bootstrap.servers": self.bootstrap}, topic):
            found[record.partition].append((record.offset, json.loads(record.value or b"{}")))
        return {p: [row for _, row in sorted(mine, key=lambda each: each[0])] for p, mine in found.items()}


def assert_timed(regions: Regions, name: str = "reminders", fault: str = "") -> None:
    """Wait for all results of `tests.timers.remembered`, and compare them with the model: each result and each dead
    letter is there once.

    Args: name: of its region. fault: the mechanism that is off, "barrier" or one of the model. Then the results must be
        others than those of a right run.
    """
    sent = regions.rows("clicks")
    right, planted = Model().read(sent), Model(fault=fault).read(sent)
    regions.settle({name: planted.results.total()})
    found = timers.results(regions.results(name)), timers.letters(regions.letters(name))
    fired = sum(timer is not None for *_, timer in right.results.elements())
    print(f"{name}: {right.results.total()} results, {fired} of timers, {right.letters.total()} dead letters are right")
    print(f"{name}: {right.expired} states expired; {(found[0] - right.results).total()} results are more than right")
    assert min(fired, right.expired) > 50, "the mechanisms had work to do"
    if fault == "barrier":
        assert (*map(set, found),) == (set(right.results), set(right.letters))
    else:
        assert found == (planted.results, planted.letters)
    assert (found[0] == right.results) is not bool(fault)


@contextlib.contextmanager
def running(
    broker: Broker, home: Path, tag: str, file: str | Path, *options: str, sources: Sequence[str],
    names: Sequence[str], **env: str,
) -> Iterator[Regions]:  # fmt: skip
    """Run an application on fresh topics until the end of the block.

    Args: file: in apps/, or a whole path. options: of the command. sources, names: of the sources and the live regions;
        in capitals, they name their topics in the environment.
    """
    topics = {name: f"{name}-{tag}" for name in (*sources, *names)}
    known = topics_of(broker.bootstrap)
    for topic in topics.values():
        known.create(topic, 2, {})
    env |= {name.upper(): topic for name, topic in topics.items()}
    application = Application(APPS / file, broker.bootstrap, home, env, *options)
    with application:
        application.wait_committed(-1)
        yield Regions(bootstrap=broker.bootstrap, application=application, topics=topics, names=names)
