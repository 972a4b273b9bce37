"""The demo's screen: rates, latencies, regions and events while it runs; plain lines where there is no terminal."""

import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from falkirk.demo.load import IndexReader, PageProducer, percentiles_ms

#: Rates and latencies are those of so many last seconds.
WINDOW_S = 10.0
EVENTS_SHOWN = 8


def latency(percentiles: list[float]) -> str:
    """Return percentiles as `percentiles_ms` gives them in words."""
    if not percentiles:
        return "nothing yet"
    p50, p95, p99, most = percentiles
    return f"p50 {p50:,.0f} ms   p95 {p95:,.0f} ms   p99 {p99:,.0f} ms   max {most:,.0f} ms"


@dataclass(kw_only=True)
class Screen:
    """What is shown: the host's last status, a line per event, and what the outside world sent and received."""

    console: Console
    producer: PageProducer
    reader: IndexReader
    total: int
    began_s: float = field(default_factory=time.monotonic)
    regions: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    host: int = 0
    killed: int = 0
    _status_at_s: float = 0.0

    def say(self, text: str) -> None:
        """Add an event. The coordinator says its own from its thread."""
        self.events.append(f"{time.monotonic() - self.began_s:5.0f} s  {text}")
        if not self.console.is_terminal:
            self.console.print(self.events[-1], soft_wrap=True, markup=False)

    def take(self, status: dict[str, Any]) -> None:
        """Take the host's status, unless it is the last word of the one that was killed."""
        if status["pid"] != self.killed:
            self.host, self.regions, self._status_at_s = status["pid"], status["regions"], status["at_s"]

    def mark_killed(self) -> None:
        """Note that the host is no more: its regions are gone until the next one tells of them."""
        self.killed = self.host
        self.regions = [{**region, "state": "killed", "checkpoint_age_s": None} for region in self.regions]

    def running(self) -> bool:
        """Tell whether all regions run."""
        return bool(self.regions) and all(region["state"] == "running" for region in self.regions)

    def line(self) -> str:
        """Return this moment in one line."""
        sent, due, recent = len(self.producer.sent_at_s), self.producer.changes_due, self.reader.recent_s(WINDOW_S)
        ages = [age for region in self.regions if (age := self._checkpoint_age_s(region)) is not None]
        checkpoint = f"   checkpoint {max(ages):.0f} s old" if ages else ""
        pages = f"pages {sent:,} of {self.total:,} ({self._rate(self.producer.recent(WINDOW_S))})"
        changes = f"change records {self.reader.received:,} of {due:,} ({self._rate(len(recent))})"
        delays = f"latency {latency(percentiles_ms(recent))}{checkpoint}"
        return f"{time.monotonic() - self.began_s:5.0f} s  {pages}   {changes}   {delays}"

    def picture(self) -> RenderableType:
        """Return this moment for a terminal."""
        sent, due = len(self.producer.sent_at_s), self.producer.changes_due
        recent, overall = self.reader.recent_s(WINDOW_S), self.reader.latencies_s
        counts = Table.grid(padding=(0, 3))
        counts.add_row(
            "pages", f"{sent:,} of {self.total:,}", self._rate(self.producer.recent(WINDOW_S)), self._bar(sent)
        )
        counts.add_row("change records", f"{self.reader.received:,} of {due:,} due", self._rate(len(recent)), "")
        delays = Table.grid(padding=(0, 3))
        delays.add_row(f"latency, last {WINDOW_S:.0f} s", latency(percentiles_ms(recent)))
        delays.add_row("latency, overall", latency(percentiles_ms(overall)))
        regions = Table.grid(padding=(0, 3))
        for region in self.regions:
            age = self._checkpoint_age_s(region)
            regions.add_row(
                f"region {region['name']}",
                Text(region["state"], style="green" if region["state"] == "running" else "bold red"),
                f"incarnation {region['incarnation']}",
                f"checkpoint {age:.0f} s old" if age is not None else "",
                f"{region['suppressed']:,} suppressed" if region["suppressed"] else "",
            )
        return Group(counts, delays, regions, "", *[Text(event) for event in self.events[-EVENTS_SHOWN:]])

    def _bar(self, sent: int) -> ProgressBar:
        return ProgressBar(total=max(1, self.total), completed=sent, width=30)

    def _rate(self, recent: int) -> str:
        began_s = self.producer.began_s
        return "" if began_s is None else f"{recent / min(WINDOW_S, max(1.0, time.monotonic() - began_s)):,.0f}/s"

    def _checkpoint_age_s(self, region: dict[str, Any]) -> float | None:
        age_s = region["checkpoint_age_s"]
        return None if age_s is None else float(age_s) + max(0.0, time.time() - self._status_at_s)
