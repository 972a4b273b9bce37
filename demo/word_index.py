"""Word index demo: sends pages, reads changes, kills the application half-way, and prints the checker's verdict."""

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from demo import stage
from demo.load import Collector, IndexReader, PageProducer, percentiles_ms
from demo.pages import Page, opened, pages, words
from demo.screen import IndexScreen, Show, latency
from falkirk.checker import (
    AggregateModel,
    Count,
    Guarantee,
    InputRow,
    Latest,
    RowPlace,
    Verdict,
    check_keyed,
    outputs_of,
    read_topic,
    render,
)
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.platform.terminal import Terminal
from falkirk.spark_setup import broker as local_broker

PAGES, INDEX, PARTITIONS = "pages", "index", 2
#: Seconds without a new change record after which the demo gives up the remaining ones.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The options of the demo: the number of pages, their rate per second, their source and order, and whether to keep
    the demo's files."""

    pages: int = 1000
    rate: float = 20.0
    source: Path | None = None
    seed: int | None = None
    keep: bool = False


def example() -> Path:
    """Return the file of the word index."""
    return stage.example("word_index.py")


def run_demo(settings: DemoSettings, console: Terminal) -> bool:
    """Run the demo. Return whether the checker found exactly-once.

    Raises: FalkirkError: the demo could not run. KeyboardInterrupt: the user stopped it; it has cleaned up.
    """
    source = opened(pages(settings.source, seed=settings.seed), settings.source)
    collector = Collector(islice(source, settings.pages))
    collector.start()
    console.print(f"word index over {settings.source or 'the docstrings of this Python'}", soft_wrap=True)
    try:
        with stage.workplace(keep=settings.keep, console=console) as folder:
            bootstrap = local_broker.start(folder / "broker", java_options=local_broker.SHORT_RUN).bootstrap
            topics = Topics(Connection.of(bootstrap))
            for topic in (PAGES, INDEX):
                topics.create(topic, PARTITIONS, {})
            producer = PageProducer(bootstrap, PAGES, collector.found, settings.rate)
            reader = IndexReader(bootstrap, INDEX, PARTITIONS, producer.sent_at_s)
            screen = IndexScreen(console=console, producer=producer, reader=reader, total=settings.pages)
            _play(screen, collector, bootstrap, folder / "home")
            return _conclude(screen, bootstrap, folder / "home")
    finally:
        collector.stopping.set()


def _play(screen: IndexScreen, collector: Collector[Page], bootstrap: str, home: Path) -> None:
    producer, reader = screen.producer, screen.reader
    application = stage.Performance(example(), bootstrap, home, screen)
    try:
        application.start()
        reader.start()
        screen.say("starting Spark")
        _watch(screen, collector, application)
        producer.stopping.set()
        stage.linger(reader)
    finally:
        with stage.undisturbed():
            producer.stopping.set()
            producer.warm.set()
            reader.stopping.set()
            application.stop()
            if reader.ident is not None:
                reader.join()
    application.check()


def _watch(screen: IndexScreen, collector: Collector[Page], application: stage.Performance) -> None:
    """Show the progress, and kill the Spark application half-way. End when all is read, or no result has arrived for a
    long time."""
    producer, reader = screen.producer, screen.reader
    killed_s, again_s, half_s, received, progress_s = 0.0, 0.0, 0.0, 0, time.monotonic()
    with Show(screen) as show:
        while not application.has_ended():
            now_s = time.monotonic()
            if producer.began_s is None:
                progress_s = now_s
                if screen.running() and not collector.is_alive() and producer.ident is None:
                    screen.total = len(collector.found)
                    screen.say("the regions run; pages begin to arrive")
                    producer.start()
            elif not half_s and len(producer.sent_at_s) >= screen.total / 2 and screen.running() and reader.received:
                half_s = now_s
                producer.slow.set()  # so that some pages are left after the kill
            elif half_s and not killed_s and (application.has_warm_standby() or now_s - half_s > stage.STANDBY_S):
                screen.say(f"latency so far: {latency(percentiles_ms(reader.latencies_s))}")
                screen.say(f"kill -9 of the Spark application, without warning: {application.kill()} processes")
                screen.mark_killed()
                killed_s = progress_s = now_s
                producer.slow.clear()
            elif killed_s and not again_s and screen.running():
                again_s = now_s
                screen.say(f"all regions run again, {now_s - killed_s:.0f} s after the kill")
            if reader.received > received:
                producer.warm.set()
                received, progress_s = reader.received, now_s
            if again_s and not producer.is_alive() and received >= producer.changes_due:
                break
            if now_s - progress_s > PATIENCE_S:
                screen.say(f"no result has arrived for {PATIENCE_S:.0f} s; the demo stops waiting")
                break
            show.refresh()
            time.sleep(0.1)


def judge(bootstrap: str) -> Verdict:
    """Return the checker's verdict on the index, from the two topics and a Python tokeniser alone."""
    config = {"bootstrap.servers": bootstrap}
    inputs = []
    for record in read_topic(config, PAGES):
        page = json.loads(record.value or b"{}")
        places: dict[str, list[int]] = {}
        for at, word in enumerate(words(page["text"]), start=1):
            places.setdefault(word, []).append(at)
        for sub, (word, positions) in enumerate(sorted(places.items())):
            place = RowPlace(record.topic, record.partition, record.offset, sub)
            inputs.append(
                InputRow(key=word, place=place, row={"word": word, "page": page["page"], "positions": positions})
            )
    model = AggregateModel(["word"], {"version": Count(), "page": Latest("page"), "positions": Latest("positions")})
    return check_keyed(inputs, outputs_of(read_topic(config, INDEX)), model)


def _conclude(screen: IndexScreen, bootstrap: str, home: Path) -> bool:
    console, reader = screen.console, screen.reader
    console.print("\nThe checker reads both topics and recomputes the index …")
    verdict = judge(bootstrap)
    console.print(render(verdict))
    suppressed = stage.suppressed(home)
    shares = ", ".join(f"{name} {count:,}" for name, count in suppressed.items())
    console.print(f"pages: {len(screen.producer.sent_at_s):,}")
    console.print(f"replayed results that were dropped: {sum(suppressed.values()):,} ({shares})")
    console.print(f"latency, including the recovery: {latency(percentiles_ms(reader.latencies_s))}\n")
    for word in ("the", "exactly"):
        _look_up(reader, word, console)
    if console.is_terminal and sys.stdin.isatty():
        with contextlib.suppress(EOFError):
            while word := console.input("look up a word (an empty line exits): ").strip().lower():
                _look_up(reader, word, console)
    return verdict.guarantee is Guarantee.EXACTLY_ONCE


def _look_up(reader: IndexReader, word: str, console: Terminal) -> None:
    found = reader.index.get(word, [])
    best = sorted(found, key=lambda entry: (-entry[1], entry[0]))[:5]
    listed = ", ".join(f"{page} ({count}×)" for page, count in best)
    console.print(f"“{word}” is on {len(found):,} pages{': ' + listed if best else ''}", soft_wrap=True)
