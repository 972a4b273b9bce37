"""Order of runs, their names, and the summary of repetitions: the pure part of the bench of peers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from falkirk.plan.mechanisms import TWINS_INTERVAL_S

#: Falkirk's exactly-once with twins.
TWINS = "exactly-once, twins"
#: System, guarantee. Plain Spark and Kafka Streams do not offer the others.
SYSTEMS = {
    "falkirk": ("at-least-once", TWINS, "exactly-once"),
    "flink": ("none", "at-least-once", "exactly-once"),
    "streams": ("at-least-once", "exactly-once"),
    "spark-rtm": ("at-least-once",),
    "spark-batch": ("at-least-once",),
}
#: The kinds of cases.
KINDS = ("latency", "recovery", "throughput")
#: Kafka Streams commits every 0.1 s by default with exactly-once delivery, so this interval is measured too.
DEFAULT_INTERVAL_S = {("streams", "exactly-once"): 0.1}
COLUMNS = (
    "p50_ms", "p95_ms", "p99_ms", "max_ms", "recovery_s", "records_per_s", "records_per_core_s",
    "missing", "repeated", "wrong",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured setting.

    Args: kind: `latency`, `recovery` or `throughput`. interval_s: between checkpoints or commits.
    """

    kind: str
    system: str
    guarantee: str
    interval_s: float
    rate: float

    @property
    def name(self) -> str:
        """The stem of its figures."""
        text = f"{self.kind}_{self.system}_{self.guarantee}_{self.interval_s:g}s_{self.rate:g}"
        return text.replace("-", "_").replace(", ", "_")


def latency_cases(systems: Sequence[str], intervals_s: Sequence[float], rates: Sequence[float]) -> list[Case]:
    """Return the cases of latency. A case whose result does not depend on the interval occurs once a rate."""
    found = []
    for rate in rates:
        for system in systems:
            for guarantee in SYSTEMS[system]:
                depends = guarantee != "none" and system != "spark-batch"
                default_s = DEFAULT_INTERVAL_S.get((system, guarantee))
                chosen = [*intervals_s] if depends else [intervals_s[0]]
                chosen = chosen if default_s is None else [default_s, *chosen]
                for interval_s in (s for s in chosen if guarantee != TWINS or s >= TWINS_INTERVAL_S):
                    case = Case(kind="latency", system=system, guarantee=guarantee, interval_s=interval_s, rate=rate)
                    found.append(case)
    return found


def alternating(cases: Sequence[Case], repetitions: int) -> list[Case]:
    """Return all runs: every second repetition in the opposite order, so that no system always runs first."""
    return [case for n in range(repetitions) for case in (cases if n % 2 == 0 else reversed(cases))]


def summary(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Return median, least and most of each figure over the repetitions, by stable names."""
    figures: dict[str, float] = {}
    for name, repetitions in runs.items():
        for key in sorted({key for each in repetitions for key in each}):
            values = [each[key] for each in repetitions if key in each]
            figures |= {
                f"{name}_{key}": round(median(values), 3),
                f"{name}_{key}_least": min(values),
                f"{name}_{key}_most": max(values),
            }
    return figures


def markdown(figures: Mapping[str, float], cases: Sequence[Case]) -> str:
    """Return the table of docs/benchmarks.md: the median, and in brackets the least and the most."""
    lines = [
        "| case | system | guarantee | interval | records/s | " + " | ".join(COLUMNS) + " |",
        "|---" * (5 + len(COLUMNS)) + "|",
    ]
    for case in cases:
        cells = []
        for column in COLUMNS:
            stem = f"{case.name}_{column}"
            spread = f" ({figures[stem + '_least']:g}–{figures[stem + '_most']:g})" if stem in figures else ""
            cells.append(f"{figures[stem]:g}{spread}" if stem in figures else "–")
        rate = f"{case.rate:g}" if case.rate else "backlog"
        head = f"| {case.kind} | {case.system} | {case.guarantee} | {case.interval_s:g} s | {rate} | "
        lines.append(head + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def read_peers(text: str) -> tuple[dict[str, float], list[Case]]:
    """Return the figures and cases of a report that the bench wrote as JSON."""
    report = json.loads(text)
    return report["figures"], [Case(**case) for case in report["settings"]["cases"]]


def newest_checkpoint(paths: Sequence[tuple[str, int]]) -> str:
    """Return the folder of Flink's newest complete checkpoint, or nothing. Args: paths: of `chk-N`, with N."""
    return max(paths, key=lambda each: each[1])[0] if paths else ""
