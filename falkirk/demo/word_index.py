"""The word index live: pages in, change records out, one kill -9 half-way, and the checker's verdict at the end."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import psutil
from rich.console import Console
from rich.live import Live

import falkirk
from falkirk.check import (
    AggregateModel,
    Count,
    Guarantee,
    Input,
    Latest,
    Place,
    Verdict,
    check_keyed,
    outputs_of,
    read_topic,
    render,
)
from falkirk.coordinator.home import ProcessRecord
from falkirk.coordinator.load import load_application
from falkirk.coordinator.store import Store
from falkirk.coordinator.supervise import Coordinator, RunSettings
from falkirk.demo.load import Collector, IndexReader, PageProducer, percentiles_ms
from falkirk.demo.pages import pages, words
from falkirk.demo.screen import Screen, latency
from falkirk.errors import FalkirkError, MachineError
from falkirk.local import broker as local_broker
from falkirk.local.jars import cache_home
from falkirk.logs.connection import Connection
from falkirk.logs.topics import Topics

PAGES, INDEX, PARTITIONS = "pages", "index", 2
#: Seconds without a new change record after which the rest is given up for lost.
PATIENCE_S = 120.0
LINE_EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the user can choose: pages to send, per second, from where and in which order, and whether to keep what the
    demo leaves."""

    pages: int = 1000
    rate: float = 20.0
    source: Path | None = None
    seed: int | None = None
    keep: bool = False


def example() -> Path:
    """Return the file of the word index: beside the package when installed, in the clone otherwise."""
    package = Path(falkirk.__file__).parent
    for folder in (package / "examples", package.parent / "examples"):
        if (folder / "word_index.py").exists():
            return folder / "word_index.py"
    raise MachineError("EXAMPLE_MISSING", "the example is not in this installation.", where=package)


def run_demo(settings: DemoSettings, console: Console) -> bool:
    """Run the demo; return whether the checker found exactly-once.

    Raises: FalkirkError: what kept it from running. KeyboardInterrupt: the user stopped it; nothing is left behind.
    """
    source = pages(settings.source, seed=settings.seed)
    first = next(source, None)
    if first is None:
        raise MachineError(
            "INPUT_MISSING", "there are no words in it.", where=settings.source, hint="Name some text with --input."
        )
    collector = Collector(islice(chain([first], source), settings.pages))
    collector.start()
    console.print(f"word index over {settings.source or 'the docstrings of this Python'}", soft_wrap=True)
    try:
        with workplace(keep=settings.keep, console=console) as folder:
            bootstrap = local_broker.start(folder / "broker").bootstrap
            topics = Topics(Connection.of(bootstrap))
            for topic in (PAGES, INDEX):
                topics.create(topic, PARTITIONS, {})
            producer = PageProducer(bootstrap, PAGES, collector.pages, settings.rate)
            reader = IndexReader(bootstrap, INDEX, PARTITIONS, producer.sent_at_s)
            screen = Screen(console=console, producer=producer, reader=reader, total=settings.pages)
            _play(screen, collector, bootstrap, folder / "home")
            return _conclude(screen, bootstrap, folder / "home")
    finally:
        collector.stopping.set()


@contextlib.contextmanager
def workplace(*, keep: bool, console: Console) -> Iterator[Path]:
    """Yield a fresh folder for one run, and stop its broker and remove it in the end.

    What a demo that was itself killed with -9 left behind is removed first: its folder has a lock that nobody holds.
    """
    root = cache_home() / "demo"
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        for former in sorted(root.glob("*/lock")):
            with contextlib.suppress(BlockingIOError):
                os.close(_lock(former))
                _clear(former.parent)
        folder = Path(tempfile.mkdtemp(dir=root))
        held = _lock(folder / "lock")
    try:
        yield folder
    finally:
        with _undisturbed():
            if keep:
                (folder / "lock").unlink()
                console.print(f"kept: {folder}, with its broker, which has to be stopped by hand", soft_wrap=True)
            else:
                _clear(folder)
            os.close(held)


def _lock(file: Path) -> int:
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    return handle


def _clear(folder: Path) -> None:
    local_broker.stop(folder / "broker")
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let a second, impatient Ctrl-C not break the cleaning up that the first one asked for."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _play(screen: Screen, collector: Collector, bootstrap: str, home: Path) -> None:
    file = example()
    run = RunSettings(file=file, kafka=bootstrap, home=home)
    coordinator = Coordinator(load_application(file), run, say=screen.say, on_status=screen.take)
    ended: list[FalkirkError | None] = []
    thread = threading.Thread(target=lambda: ended.append(_guarded(coordinator)), name="demo-coordinator", daemon=True)
    producer, reader = screen.producer, screen.reader
    thread.start()
    reader.start()
    try:
        screen.say("starting Spark")
        _watch(screen, collector, home, ended)
        producer.stopping.set()
        _linger(reader)
    finally:
        with _undisturbed():
            producer.stopping.set()
            producer.warm.set()
            reader.stopping.set()
            coordinator.stop()
            thread.join()
            reader.join()
    if ended and ended[0] is not None:
        raise ended[0]


def _watch(screen: Screen, collector: Collector, home: Path, ended: list[FalkirkError | None]) -> None:
    """Show what goes on, and kill the Spark application half-way, until all is read or nothing comes any more."""
    producer, reader, terminal = screen.producer, screen.reader, screen.console.is_terminal
    killed_s, again_s, received, progress_s, printed_s = 0.0, 0.0, 0, time.monotonic(), 0.0
    live = Live(console=screen.console, refresh_per_second=4, transient=True) if terminal else None
    with live or contextlib.nullcontext():
        while not ended:
            now_s = time.monotonic()
            if producer.began_s is None:
                progress_s = now_s
                if screen.running() and not collector.is_alive() and producer.ident is None:
                    screen.total = len(collector.pages)
                    screen.say("the regions run; pages begin to arrive")
                    producer.start()
            elif not killed_s and len(producer.sent_at_s) >= screen.total / 2 and screen.running() and reader.received:
                screen.say(f"latency so far: {latency(percentiles_ms(reader.latencies_s))}")
                screen.say(f"kill -9 of the Spark application: {_kill_spark(home)} processes, and no word of warning")
                screen.mark_killed()
                killed_s = progress_s = now_s
            elif killed_s and not again_s and screen.running():
                again_s = now_s
                screen.say(f"all regions run again, {now_s - killed_s:.0f} s after the kill")
            if reader.received > received:
                producer.warm.set()
                received, progress_s = reader.received, now_s
            if again_s and not producer.is_alive() and received >= producer.changes_due:
                break
            if now_s - progress_s > PATIENCE_S:
                screen.say(f"nothing has come for {PATIENCE_S:.0f} s; the rest is given up")
                break
            if live is not None:
                live.update(screen.picture())
            elif now_s - printed_s > LINE_EVERY_S:
                printed_s = now_s
                screen.console.print(screen.line(), soft_wrap=True)
            time.sleep(0.1)
    if live is not None:  # once more, to stay on the terminal
        screen.console.print(screen.picture())


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


def _conclude(screen: Screen, bootstrap: str, home: Path) -> bool:
    console, reader = screen.console, screen.reader
    console.print("\nThe checker reads both topics and recomputes the index …")
    verdict = judge(bootstrap)
    console.print(render(verdict))
    store = Store(home / "decisions.db")
    suppressed = {name: sum(int(row.suppressible) for row in store.incarnations(name)) for name in store.region_names()}
    store.close()
    shares = ", ".join(f"{name} {count:,}" for name, count in suppressed.items())
    console.print(f"pages: {len(screen.producer.sent_at_s):,}")
    console.print(f"replayed and suppressed: {sum(suppressed.values()):,} ({shares})")
    console.print(f"latency overall, the recovery included: {latency(percentiles_ms(reader.latencies_s))}\n")
    for word in ("the", "exactly"):
        _look_up(reader, word, console)
    if console.is_terminal and sys.stdin.isatty():
        with contextlib.suppress(EOFError):
            while word := console.input("look up a word (an empty line ends): ").strip().lower():
                _look_up(reader, word, console)
    return verdict.guarantee is Guarantee.EXACTLY_ONCE


def _look_up(reader: IndexReader, word: str, console: Console) -> None:
    found = reader.index.get(word, [])
    best = sorted(found, key=lambda entry: (-entry[1], entry[0]))[:5]
    listed = ", ".join(f"{page} ({count}×)" for page, count in best)
    console.print(f"“{word}” is on {len(found):,} pages{': ' + listed if best else ''}", soft_wrap=True, markup=False)
