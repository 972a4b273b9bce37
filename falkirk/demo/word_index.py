"""The word index live: pages in, change records out, one kill -9 half-way, and the checker's verdict at the end."""

import contextlib
import json
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import falkirk
from falkirk.check import AggregateModel, Count, Input, Latest, Place, Verdict, check_keyed, outputs_of, read_topic
from falkirk.coordinator.home import ProcessRecord
from falkirk.coordinator.load import load_application
from falkirk.coordinator.supervise import Coordinator, RunSettings
from falkirk.demo.load import IndexReader, PageProducer, percentiles_ms
from falkirk.demo.pages import pages, words
from falkirk.errors import FalkirkError, MachineError
from falkirk.local import broker as local_broker
from falkirk.local.jars import cache_home
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics

PAGES, INDEX, PARTITIONS = "pages", "index", 2
#: Seconds without a new change record after which the rest is given up for lost.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the user can choose: pages to send, per second, from where, and whether to keep what the demo leaves."""

    pages: int = 1000
    rate: float = 20.0
    source: Path | None = None
    keep: bool = False


@dataclass(kw_only=True)
class _Show:
    """What is on the terminal: the host's last status and a line per event."""

    console: Console
    began_s: float = field(default_factory=time.monotonic)
    status: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    suppressed: dict[tuple[str, int], int] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Add an event."""
        self.events.append(f"{time.monotonic() - self.began_s:5.0f} s  {text}")
        if not self.console.is_terminal:
            self.console.print(self.events[-1])

    def take(self, status: dict[str, Any]) -> None:
        """Take the host's status."""
        self.status = status
        for region in status["regions"]:
            self.suppressed[region["name"], region["incarnation"]] = region["suppressed"]

    def running(self) -> bool:
        """Tell whether all regions run."""
        regions = self.status.get("regions", [])
        return bool(regions) and all(r["state"] == "running" for r in regions)

    def render(self, producer: PageProducer, reader: IndexReader, total: int) -> Group:
        """Return the picture of this moment."""
        sent, elapsed_s = len(producer.sent_at_s), max(0.1, time.monotonic() - self.began_s)
        recent = percentiles_ms(reader.recent_s())
        lines = [
            f"pages {sent:,} of {total:,}   change records {reader.received:,} of {producer.changes_due:,} due"
            f"   ({len(reader.recent_s()) / min(10.0, elapsed_s):,.0f}/s)",
            "latency, last 10 s: " + _latency(recent),
        ]
        for region in self.status.get("regions", []):
            age = region["checkpoint_age_s"]
            lines.append(
                f"{region['name']:<14} {region['state']:<10} incarnation {region['incarnation']}"
                + (f"   checkpoint {age:.0f} s old" if age is not None else "")
            )
        return Group(*[Text(line) for line in (*lines, "", *self.events[-8:])])


def _latency(percentiles: list[float]) -> str:
    if not percentiles:
        return "nothing yet"
    p50, p95, p99, most = percentiles
    return f"p50 {p50:,.0f} ms   p95 {p95:,.0f} ms   p99 {p99:,.0f} ms   max {most:,.0f} ms"


def example() -> Path:
    """Return the file of the word index: beside the package when installed, in the clone otherwise."""
    package = Path(falkirk.__file__).parent
    for folder in (package / "examples", package.parent / "examples"):
        if (folder / "word_index.py").exists():
            return folder / "word_index.py"
    raise MachineError("EXAMPLE_MISSING", "the example is not in this installation.", where=package)


def run_demo(settings: DemoSettings, console: Console) -> bool:
    """Run the demo; return whether the checker found exactly-once.

    Raises: FalkirkError: what kept it from running.
    """
    chosen = list(islice(pages(settings.source), settings.pages))
    console.print(f"word index over {len(chosen):,} pages from {settings.source or 'the docstrings of this Python'}")
    folder = cache_home() / "demo-broker"
    local_broker.stop(folder)
    shutil.rmtree(folder, ignore_errors=True)
    bootstrap = local_broker.start(folder).bootstrap
    home = Path(tempfile.mkdtemp(prefix="falkirk-demo-"))
    try:
        topics = Topics(Connection.of(bootstrap))
        for topic in (PAGES, INDEX):
            topics.create(topic, PARTITIONS, {})
        show = _Show(console=console)
        producer = PageProducer(bootstrap, PAGES, chosen, settings.rate)
        reader = IndexReader(bootstrap, INDEX, PARTITIONS, producer.sent_at_s)
        _play(show, producer, reader, bootstrap, home, total=len(chosen))
        return _conclude(show, reader, bootstrap, console)
    finally:
        if settings.keep:
            console.print(f"kept: home {home}, broker {bootstrap} (data in {folder})", soft_wrap=True)
        else:
            local_broker.stop(folder)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(home, ignore_errors=True)


def _play(show: _Show, producer: PageProducer, reader: IndexReader, bootstrap: str, home: Path, *, total: int) -> None:
    file = example()
    app = load_application(file)
    run = RunSettings(file=file, kafka=bootstrap, home=home)
    coordinator = Coordinator(app, run, say=show.say, on_status=show.take)
    ended: list[FalkirkError | None] = []
    thread = threading.Thread(target=lambda: ended.append(_guarded(coordinator)), name="demo-coordinator", daemon=True)
    thread.start()
    reader.start()
    killed, last_received, last_progress_s = False, 0, time.monotonic()
    show.say("starting Spark")
    live = Live(console=show.console, refresh_per_second=4) if show.console.is_terminal else contextlib.nullcontext()
    printed_s = 0.0
    with live as screen:
        while not ended:
            if show.running() and not producer.ident:
                show.say("the regions run; pages begin to arrive")
                producer.start()
            if not killed and len(producer.sent_at_s) >= total // 2:
                killed = True
                show.say(f"latency so far: {_latency(percentiles_ms(reader.latencies_s))}")
                show.say(f"kill -9 of the Spark application: {_kill_spark(home)} processes")
            if reader.received > last_received:
                producer.warm.set()
                last_received, last_progress_s = reader.received, time.monotonic()
            done = killed and not producer.is_alive() and reader.received >= producer.changes_due
            if done or (producer.ident and time.monotonic() - last_progress_s > PATIENCE_S):
                break
            if screen is not None:
                screen.update(show.render(producer, reader, total))
            elif time.monotonic() - printed_s > 2.0:
                printed_s = time.monotonic()
                show.console.print(show.render(producer, reader, total).renderables[0])
            time.sleep(0.1)
    producer.stopping.set()
    producer.warm.set()
    _linger(reader)
    coordinator.stop()
    thread.join()
    reader.stopping.set()
    reader.join()
    if ended and ended[0] is not None:
        raise ended[0]


def _guarded(coordinator: Coordinator) -> FalkirkError | None:
    try:
        coordinator.run()
    except FalkirkError as error:
        return error
    return None


def _linger(reader: IndexReader, quiet_s: float = 2.0) -> None:
    """Read on until nothing has come for a while: a duplicate would come late."""
    last, since_s = reader.received, time.monotonic()
    while time.monotonic() - since_s < quiet_s:
        if reader.received != last:
            last, since_s = reader.received, time.monotonic()
        time.sleep(0.05)


def _kill_spark(home: Path) -> int:
    """Kill the host's Python and its JVM at once, as a machine that loses power would."""
    pids = [json.loads((home / "status.json").read_text())["pid"]]
    for entry in json.loads((home / "processes.json").read_text())["processes"]:
        if ProcessRecord(**entry).find() is not None:
            pids.append(entry["pid"])
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
    return len(pids)


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
            place = Place(record.topic, record.partition, record.offset, sub)
            inputs.append(
                Input(key=word, place=place, row={"word": word, "page": page["page"], "positions": positions})
            )
    model = AggregateModel(["word"], {"version": Count(), "page": Latest("page"), "positions": Latest("positions")})
    return check_keyed(inputs, outputs_of(read_topic(config, INDEX)), model)


def _conclude(show: _Show, reader: IndexReader, bootstrap: str, console: Console) -> bool:
    from falkirk.check import Guarantee, render

    console.print("the checker reads both topics and recomputes the index …")
    verdict = judge(bootstrap)
    console.print(render(verdict))
    console.print(f"replayed and suppressed: {sum(show.suppressed.values()):,} change records")
    console.print("latency over all, the recovery included: " + _latency(percentiles_ms(reader.latencies_s)))
    for word in ("the", "exactly"):
        _look_up(reader, word, console)
    while console.is_terminal and (word := console.input("look up a word (empty line ends): ").strip().lower()):
        _look_up(reader, word, console)
    return verdict.guarantee is Guarantee.EXACTLY_ONCE


def _look_up(reader: IndexReader, word: str, console: Console) -> None:
    found = reader.index.get(word, [])
    best = sorted(found, key=lambda entry: (-entry[1], entry[0]))[:5]
    listed = ", ".join(f"{page} ({count}×)" for page, count in best)
    console.print(f"“{word}” is on {len(found):,} pages{': ' + listed if best else ''}", soft_wrap=True)
