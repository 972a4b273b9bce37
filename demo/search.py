"""Search demo: runs the live search engine with simulated users, kills it once, and checks all results."""

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from demo import stage
from demo.crowd import Crowd
from demo.load import Collector, ModuleProducer, Reader, percentiles_ms
from demo.modules import Event, events, modules
from demo.pages import opened
from demo.prompt import Prompt
from demo.screen import Show, latency
from demo.search_judge import Finding, Run, judge, read_by_rank, read_by_weights
from demo.search_screen import SearchScreen
from demo.visitor import Visitor
from falkirk.checker import outputs_of, read_topic
from falkirk.declare.application import Application
from falkirk.declare.cut import OnArrival
from falkirk.declare.load import load_application
from falkirk.declare.parts import DeclaredProcessor
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.platform.terminal import Terminal
from falkirk.recovery.decision_store import Store
from falkirk.spark_setup import broker as local_broker

#: `modules` has one partition, so that "the first n modules" has one meaning, which the checker needs.
PARTITIONS = {"modules": 1, "queries": 2, "index": 2, "answers": 2}
#: Seconds without progress after which the demo gives up the remaining results.
PATIENCE_S = 120.0
FAULTS_SHOWN = 5
#: The number of answers that each user has received on average before the kill.
ANSWERS_BEFORE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """The options of the demo. Args: modules: their number. rate: of modules, per second. source, seed: their origin
    and order. users: their number. prompt: whether to read questions from it. keep: whether to keep the files."""

    modules: int = 400
    rate: float = 5.0
    users: int = 8
    source: Path | None = None
    seed: int | None = None
    prompt: bool = False
    keep: bool = False


def example() -> Path:
    """Return the file of the search engine."""
    return stage.example("search.py")


def run_demo(settings: SearchSettings, console: Terminal) -> bool:
    """Run the demo. Return whether the checker found no fault.

    Raises: FalkirkError: the demo could not run. KeyboardInterrupt: the user stopped it; it has cleaned up.
    """
    found = opened(modules(settings.source, seed=settings.seed), settings.source)
    collector = Collector(events(found, settings.modules, seed=settings.seed or 0))
    collector.start()
    console.print(f"a search engine over {settings.source or 'the modules of this Python'}:", soft_wrap=True)
    console.print(
        "a live index of words, batches for weights and ranks; a live answer reads their newest results\n",
        soft_wrap=True,
    )
    try:
        with stage.workplace(keep=settings.keep, console=console) as folder:
            os.environ["SEARCH_DATA"] = str(folder)
            # The driver lives for minutes only, so thorough compilation would cost more time than it saves.
            os.environ.setdefault(
                "SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
            )
            bootstrap = local_broker.start(folder / "broker", java_options=local_broker.SHORT_RUN).bootstrap
            topics = Topics(Connection.of(bootstrap))
            for topic, partitions in PARTITIONS.items():
                topics.create(topic, partitions, {})
            demo = SearchDemo(settings, collector, bootstrap, folder, console)
            demo.play()
            return demo.conclude()
    finally:
        collector.stopping.set()


class SearchDemo:
    """One run of the demo: its processes and threads, and the order of its events."""

    def __init__(
        self, settings: SearchSettings, collector: Collector[Event], bootstrap: str, folder: Path, console: Terminal
    ) -> None:
        self._settings, self._collector, self._bootstrap, self._folder = settings, collector, bootstrap, folder
        self._producer = ModuleProducer(bootstrap, "modules", collector.found, settings.rate)
        self._reader = Reader(bootstrap, "index", PARTITIONS["index"], self._producer.sent_at_s)
        self._visitor = Visitor(folder / "home", "/search")
        self._crowd = Crowd(
            bootstrap, users=settings.users, partitions=PARTITIONS["answers"], seed=settings.seed,
            sent=lambda: collector.found[: len(self._producer.sent_at_s)],
            on_answer=lambda *answer: self._screen.hear(*answer), visitor=self._visitor,
        )  # fmt: skip
        self._screen = SearchScreen(
            console=console, producer=self._producer, reader=self._reader, crowd=self._crowd, total=settings.modules,
            regimes=regimes(load_application(example())),
        )  # fmt: skip
        self._application = stage.Performance(example(), bootstrap, folder / "home", self._screen)

    def play(self) -> None:
        """Run the demo to its end. Raises: FalkirkError: the application failed."""
        try:
            self._application.start()
            self._reader.start()
            self._crowd.start()
            self._watch()
            self._silence()
            stage.linger(self._reader, self._crowd)
        finally:
            with stage.undisturbed():
                self._silence()
                self._producer.warm.set()
                self._reader.stopping.set()
                self._crowd.stopping.set()
                self._visitor.leave()
                self._application.stop()
                for thread in (self._reader, self._crowd):
                    if thread.ident is not None:
                        thread.join()
        self._application.check()

    def _silence(self) -> None:
        self._producer.stopping.set()
        self._crowd.silent.set()

    def _watch(self) -> None:
        """Show the progress, and send the questions that the user types."""
        screen, progress, progress_s = self._screen, (0, 0, 0), time.monotonic()
        prompt = Prompt() if self._settings.prompt else None
        with prompt or contextlib.nullcontext(), Show(screen) as show:
            for _ in self._plot():
                now = (len(self._producer.sent_at_s), self._reader.received, self._crowd.received)
                if now != progress or self._producer.began_s is None or not screen.running():
                    progress, progress_s = now, time.monotonic()
                if time.monotonic() - progress_s > PATIENCE_S:
                    screen.say(f"no result has arrived for {PATIENCE_S:.0f} s; the demo stops waiting")
                    break
                if self._application.has_ended():
                    break
                if prompt is not None and self._producer.began_s is not None:
                    for line in prompt.lines():
                        self._crowd.ask("you", line)
                    screen.typed = prompt.typed
                show.refresh()
                time.sleep(0.1)
            screen.typed = None

    def _plot(self) -> Iterator[None]:
        """The events of the demo, in order. It yields while it waits for a condition."""
        screen, producer, reader, crowd = self._screen, self._producer, self._reader, self._crowd
        screen.say("starting Spark")
        yield from _until(lambda: screen.running(or_waiting=True) and not self._collector.is_alive())
        screen.total = len(self._collector.found)
        screen.say("all regions run, or wait for their views; modules and queries begin to arrive. You can ask too:")
        screen.console.print(self._visitor.curl(), soft_wrap=True)
        producer.start()
        yield from _until(lambda: reader.received)
        producer.warm.set()
        for _ in _until(lambda: crowd.received >= min(1, self._settings.users)):
            self._hold_back()
            yield
        screen.say("the first answer: each view has an epoch now")
        for _ in _until(
            lambda: (
                len(producer.sent_at_s) >= screen.total / 2 and crowd.received >= self._settings.users * ANSWERS_BEFORE
            )
        ):
            self._hold_back()
            yield
        until_s = time.monotonic() + stage.STANDBY_S
        for _ in _until(lambda: self._application.has_warm_standby() or time.monotonic() > until_s):
            self._hold_back()
            yield
        yield from self._kill()
        producer.slow.clear()
        yield from _until(lambda: not producer.is_alive() and reader.received >= producer.changes_due)
        screen.say("all modules are in the index; users stop asking")
        crowd.silent.set()
        yield from _until(lambda: not crowd.waiting and self._counted() >= crowd.words_asked)
        screen.say("all queries are answered and counted; the batches read the last modules")
        yield from _until(self._have_read_all)

    def _hold_back(self) -> None:
        """Send the last modules slowly, so that some are left after the kill."""
        if len(self._producer.sent_at_s) >= self._screen.total / 2:
            self._producer.slow.set()

    def _kill(self) -> Iterator[None]:
        screen, crowd = self._screen, self._crowd
        screen.say(f"so far: answers {latency(percentiles_ms(crowd.latencies_s))}")
        began_s = time.monotonic()
        screen.say(f"kill -9 of the Spark application, without warning: {self._application.kill()} processes")
        screen.mark_killed()
        cut_off = self._cut_off()
        if cut_off:
            screen.say(f"interrupted: {cut_off}; Falkirk computes them again, from the same input and views")
        yield from _until(screen.running)
        screen.say(f"all regions run again after {time.monotonic() - began_s:.0f} s; {crowd.waiting} queries wait")
        answered = crowd.received  # answers that were in flight at the kill have arrived by now
        yield from _until(lambda: crowd.received > answered or not crowd.waiting)
        screen.say(f"answers resume after {time.monotonic() - began_s:.0f} s")

    def _cut_off(self) -> str:
        """Return the epochs that were decided but are not complete, in words."""
        with contextlib.closing(Store(self._folder / "home" / "decisions.db")) as store:
            found = []
            for name in store.region_names():
                complete = {c.number for c in store.checkpoints(name)}
                found += [
                    f"epoch {d.number} of {name}" for d in store.decisions("epoch", name) if d.number not in complete
                ]
        return ", ".join(found)

    def _counted(self) -> int:
        """Return the number of words of queries in the statistics."""
        return sum(int(row["asked"]) for row in statistics(self._folder))

    def _have_read_all(self) -> bool:
        """Return whether the newest epochs of the batches include all modules."""
        sent = len(self._producer.sent_at_s)
        return all(
            any(read_by(rows) == sent for rows in epochs(self._folder / name, newest=True).values())
            for name, read_by in (("weights", read_by_weights), ("rank", read_by_rank))
        )

    def conclude(self) -> bool:
        """Print the checker's result. Return whether there is no fault."""
        console = self._screen.console
        console.print("\nThe checker recomputes everything from the input …")
        findings = judge(collect(self._bootstrap, self._folder, self._visitor.told))
        console.print(render(findings))
        good = not any(finding.faults for finding in findings)
        console.print(f"replayed results that were dropped: {sum(stage.suppressed(self._folder / 'home').values()):,}")
        console.print(f"index latency, including the recovery: {latency(percentiles_ms(self._reader.latencies_s))}")
        console.print(f"answer latency, including the recovery: {latency(percentiles_ms(self._crowd.latencies_s))}")
        return good


def _until(condition: Callable[[], object]) -> Iterator[None]:
    while not condition():
        yield


def regimes(app: Application) -> dict[str, str]:
    """Return the kind of each batch in words, by name; all other regions are live."""
    return {
        name: f"{_kind(p)}, {str(p.cut).partition(',')[0]}" for name, p in app.processors.items() if p.cut is not None
    }


def _kind(processor: DeclaredProcessor) -> str:
    if processor.iteration is not None:
        return "iterative"
    return "eager" if isinstance(processor.cut, OnArrival) else "batch"


def collect(bootstrap: str, folder: Path, told: Mapping[str, dict[str, Any]]) -> Run:
    """Return the input and output of a run. Args: told: answers over HTTP, by the query's id."""
    config = {"bootstrap.servers": bootstrap}

    def rows(topic: str) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"{}") for record in read_topic(config, topic)]

    return Run(
        modules=rows("modules"),
        queries=[query for topic in queries_of(folder / "home") for query in rows(topic)],
        index=tuple(outputs_of(read_topic(config, "index"))),
        weights=epochs(folder / "weights"),
        rank=epochs(folder / "rank"),
        answers=rows("answers"),
        statistics=statistics(folder),
        told=told,
    )


def queries_of(home: Path) -> list[str]:
    """Return the topics with queries: the one of the crowd, and those of posted requests."""
    app, identity = load_application(example()), json.loads((home / "falkirk.json").read_text())["identity"]
    return ["queries", *(http.topic(app.name, identity, name).topic for name, http in app.pushed.items())]


def epochs(folder: Path, *, newest: bool = False) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of each epoch in a folder of JSON files, or only of the newest epoch."""
    found = sorted(folder.glob("epoch=*"))
    return {
        int(epoch.name.partition("=")[2]): [
            json.loads(line) for file in sorted(epoch.glob("part-*.json")) for line in file.read_text().splitlines()
        ]
        for epoch in (found[-1:] if newest else found)
    }


def statistics(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the table; none before the table exists."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'search.db'}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute("SELECT * FROM statistics")]
    except sqlite3.OperationalError:
        return []


def render(findings: tuple[Finding, ...]) -> RenderableType:
    """Return a table of the findings, with the first faults of each output."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        verdict = Text("wrong", style="bold red") if finding.faults else Text("good", style="bold green")
        table.add_row(finding.output, verdict, f"{finding.checked:,}", finding.claim)
        for fault in finding.faults[:FAULTS_SHOWN]:
            table.add_row("", "", "", Text(str(fault), style="red"))
        if len(finding.faults) > FAULTS_SHOWN:
            table.add_row("", "", "", Text(f"and {len(finding.faults) - FAULTS_SHOWN:,} more", style="red"))
    return table
