"""Screen of the search engine: shows input and output, the regions with their regimes, and queries with answers."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.crowd import Crowd, Question
from demo.load import ModuleProducer, Reader, percentiles_ms
from demo.screen import WINDOW_S, Screen, bar, latency, rate

ANSWERS_SHOWN = 6
MODULES_SHOWN = 3
#: Without a terminal, at most one answer is printed in this time.
TELL_EVERY_S = 3.0


def told(question: Question, answer: Mapping[str, Any], took_s: float) -> str:
    """Return a question and its answer in one line."""
    best = [str(each["module"]) for each in (answer.get("best") or ())[:MODULES_SHOWN]]
    more = int(answer.get("modules") or 0) - len(best)
    found = ", ".join(best) + (f" and {more} more" if more > 0 else "") if best else "nothing"
    views = ", ".join(f"{name} {answer.get(f'{name}_epoch')}" for name in ("postings", "weights", "rank"))
    took = f"{took_s:.1f} s" if took_s >= 1 else f"{1000 * took_s:.0f} ms"
    return f"{question.user}: {question.text} → {found}   {took} ({views})"


@dataclass(kw_only=True)
class SearchScreen(Screen):
    """Shows the input and output of the demo, and the state of each region.

    Args: regimes: the kind of each region, by name. total: the number of modules. typed: the text at the prompt so
        far; None: there is no prompt.
    """

    producer: ModuleProducer
    reader: Reader
    crowd: Crowd
    regimes: Mapping[str, str]
    total: int
    typed: str | None = None
    _told_s: float = 0.0
    answers: deque[str] = field(default_factory=lambda: deque(maxlen=ANSWERS_SHOWN))

    def hear(self, question: Question, answer: Mapping[str, Any], took_s: float) -> None:
        """Show an answer. The crowd's thread calls this."""
        self.answers.append(told(question, answer, took_s))
        if question.user == "you" or (not self.console.is_terminal and time.monotonic() > self._told_s + TELL_EVERY_S):
            self._told_s = time.monotonic()
            self.say(self.answers[-1])

    def line(self) -> str:
        """See `Screen`."""
        producer, crowd = self.producer, self.crowd
        recent, answered = self.reader.recent_s(WINDOW_S), crowd.recent_s(WINDOW_S)
        parts = [f"{time.monotonic() - self.began_s:5.0f} s"]
        if producer.began_s is not None:
            parts += [
                f"modules {len(producer.sent_at_s):,} of {self.total:,}",
                f"index {self.reader.received:,} of {producer.changes_due:,} changes, {_middle(recent)}",
                f"queries {len(crowd.answered):,} of {len(crowd.asked):,} answered, {_middle(answered)}",
            ]
        else:
            there = sum(region["state"] == "running" for region in self.regions)
            parts.append(f"{there} of {len(self.regions)} regions run" if self.regions else "Spark starts")
        return "   ".join(parts)

    def picture(self) -> RenderableType:
        """See `Screen`."""
        producer, crowd = self.producer, self.crowd
        recent, answered = self.reader.recent_s(WINDOW_S), crowd.recent_s(WINDOW_S)
        counts = Table.grid(padding=(0, 3))
        sent = len(producer.sent_at_s)
        counts.add_row(
            "modules",
            f"{sent:,} of {self.total:,}",
            rate(producer.recent(WINDOW_S), producer.began_s),
            bar(sent, self.total),
        )
        counts.add_row(
            "index",
            f"{self.reader.received:,} of {producer.changes_due:,} changes",
            rate(len(recent), producer.began_s),
            latency(percentiles_ms(recent)),
        )
        counts.add_row(
            "queries",
            f"{len(crowd.answered):,} of {len(crowd.asked):,} answered",
            rate(len(answered), producer.began_s),
            latency(percentiles_ms(answered)),
        )
        parts: list[RenderableType] = [counts, "", self._regions(), ""]
        parts += [Text(answer, overflow="ellipsis", no_wrap=True) for answer in self.answers]
        parts += ["", *self.recent_events(6)]
        if self.typed is not None:
            parts += ["", Text.assemble(("ask: ", "bold"), self.typed, ("▌", "blink"))]
        return Group(*parts)

    def _regions(self) -> Table:
        regions = Table.grid(padding=(0, 3))
        for region in self.regions:
            name, age_s = str(region["name"]), self.checkpoint_age_s(region)
            is_batch = name in self.regimes
            done = f"epoch {region['last_commit']}" if is_batch and region["last_commit"] >= 0 else ""
            if not is_batch and age_s is not None:
                done = f"checkpoint {age_s:.0f} s old"
            held = f"{region['suppressed']:,} dropped" if region["suppressed"] else ""
            regime = self.regimes.get(name, "live")
            regions.add_row(
                name, Text(regime, style="dim"), self.state(region), done, held or str(region["detail"])[:60]
            )
        return regions


def _middle(latencies_s: list[float]) -> str:
    found = percentiles_ms(latencies_s)
    return f"p50 {found[0]:,.0f} ms" if found else "none recently"
