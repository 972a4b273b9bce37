"""Screen: shows rates, latencies, regions and events of a demo on a terminal, or prints plain lines elsewhere."""

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.load import IndexReader, PageProducer, percentiles_ms
from falkirk.platform.terminal import Terminal

#: Rates and latencies are those of this many last seconds.
WINDOW_S = 10.0
EVENTS_SHOWN = 8
LINE_EVERY_S = 5.0


def latency(percentiles: list[float]) -> str:
    """Return the percentiles of `percentiles_ms` as text."""
    if not percentiles:
        return "nothing yet"
    p50, p95, p99, most = percentiles
    return f"p50 {p50:,.0f} ms   p95 {p95:,.0f} ms   p99 {p99:,.0f} ms   max {most:,.0f} ms"


@dataclass(kw_only=True)
class Screen:
    """The common part of both demos' screens: the host's last status, and one line per event. Subclasses define
    `picture` and `line`."""

    console: Terminal
    began_s: float = field(default_factory=time.monotonic)
    regions: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    host: int = 0
    killed: int = 0
    _status_at_s: float = 0.0

    def say(self, text: str) -> None:
        """Add an event. The coordinator adds its events from its thread."""
        self.events.append(f"{time.monotonic() - self.began_s:5.0f} s  {text}")
        if not self.console.is_terminal:
            self.console.print(self.events[-1], soft_wrap=True)

    def take(self, status: dict[str, Any]) -> None:
        """Process the host's status, unless it is a late one of the killed host."""
        if status["pid"] != self.killed:
            self.host, self.regions, self._status_at_s = status["pid"], status["regions"], status["at_s"]

    def mark_killed(self) -> None:
        """Record that the host was killed. Its regions count as killed until the next host reports them."""
        self.killed = self.host
        self.regions = [{**region, "state": "killed", "checkpoint_age_s": None} for region in self.regions]

    def running(self, *, or_waiting: bool = False) -> bool:
        """Return whether all regions run. Args: or_waiting: or wait for the first epoch of a view."""
        good = ("running", "waiting") if or_waiting else ("running",)
        return bool(self.regions) and all(region["state"] in good for region in self.regions)

    def line(self) -> str:
        """Return the current status in one line."""
        raise AssertionError("each demo has its own")

    def picture(self) -> RenderableType:
        """Return the current status for a terminal."""
        raise AssertionError("each demo has its own")

    def state(self, region: dict[str, Any]) -> Text:
        """Return a region's state."""
        return Text(region["state"], style="green" if region["state"] == "running" else "bold red")

    def checkpoint_age_s(self, region: dict[str, Any]) -> float | None:
        """Return the age of a region's last checkpoint."""
        age_s = region["checkpoint_age_s"]
        return None if age_s is None else float(age_s) + max(0.0, time.time() - self._status_at_s)

    def recent_events(self, count: int = EVENTS_SHOWN) -> list[RenderableType]:
        """Return the last events for a terminal."""
        return [Text(event) for event in self.events[-count:]]


class Show:
    """Shows a screen within a ``with`` block: as a picture on a terminal, elsewhere as a line every few seconds."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._console = screen, screen.console
        self._live = (
            Live(console=self._console, refresh_per_second=4, transient=True) if self._console.is_terminal else None
        )
        self._printed_s = time.monotonic()

    def __enter__(self) -> "Show":
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
            if error[0] is None:  # a last time, so that it remains on the terminal
                with contextlib.suppress(KeyboardInterrupt):
                    self._console.print(self._screen.picture())

    def refresh(self) -> None:
        """Show the current status. The demo calls it several times a second."""
        now_s = time.monotonic()
        if self._live is not None:
            self._live.update(self._screen.picture())
        elif now_s - self._printed_s > LINE_EVERY_S:
            self._printed_s = now_s
            self._console.print(self._screen.line(), soft_wrap=True)


def rate(count: int, began_s: float | None) -> str:
    """Return a count of the last `WINDOW_S` as a rate; empty before the load has begun."""
    return "" if began_s is None else f"{count / min(WINDOW_S, max(1.0, time.monotonic() - began_s)):,.0f}/s"


@dataclass(kw_only=True)
class IndexScreen(Screen):
    """The screen of the word index: sent pages, received changes, and regions."""

    producer: PageProducer
    reader: IndexReader
    total: int

    def line(self) -> str:
        """See `Screen`."""
        sent, due, recent = len(self.producer.sent_at_s), self.producer.changes_due, self.reader.recent_s(WINDOW_S)
        ages = [age for region in self.regions if (age := self.checkpoint_age_s(region)) is not None]
        checkpoint = f"   checkpoint {max(ages):.0f} s old" if ages else ""
        began_s = self.producer.began_s
        pages = f"pages {sent:,} of {self.total:,} ({rate(self.producer.recent(WINDOW_S), began_s)})"
        changes = f"change records {self.reader.received:,} of {due:,} ({rate(len(recent), began_s)})"
        delays = f"latency {latency(percentiles_ms(recent))}{checkpoint}"
        return f"{time.monotonic() - self.began_s:5.0f} s  {pages}   {changes}   {delays}"

    def picture(self) -> RenderableType:
        """See `Screen`."""
        sent, due, began_s = len(self.producer.sent_at_s), self.producer.changes_due, self.producer.began_s
        recent, overall = self.reader.recent_s(WINDOW_S), self.reader.latencies_s
        counts = Table.grid(padding=(0, 3))
        counts.add_row(
            "pages", f"{sent:,} of {self.total:,}", rate(self.producer.recent(WINDOW_S), began_s), bar(sent, self.total)
        )
        counts.add_row("change records", f"{self.reader.received:,} of {due:,} due", rate(len(recent), began_s), "")
        delays = Table.grid(padding=(0, 3))
        delays.add_row(f"latency, last {WINDOW_S:.0f} s", latency(percentiles_ms(recent)))
        delays.add_row("latency, overall", latency(percentiles_ms(overall)))
        regions = Table.grid(padding=(0, 3))
        for region in self.regions:
            age = self.checkpoint_age_s(region)
            regions.add_row(
                f"region {region['name']}",
                self.state(region),
                f"incarnation {region['incarnation']}",
                f"checkpoint {age:.0f} s old" if age is not None else "",
                f"{region['suppressed']:,} suppressed" if region["suppressed"] else "",
            )
        return Group(counts, delays, regions, "", *self.recent_events())


def bar(done: int, total: int) -> ProgressBar:
    """Return a progress bar."""
    return ProgressBar(total=max(1, total), completed=done, width=30)
