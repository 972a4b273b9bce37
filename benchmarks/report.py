"""Reports: holds the figures of a bench under stable names with units, and writes them as a table and as JSON."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

POINTS = (50.0, 75.0, 95.0, 99.0, 99.9, 100.0)


def point_name(point: float) -> str:
    """Return the name of a percentile in figures: ``p50``, ``p99_9``, ``max``."""
    return "max" if point == 100.0 else f"p{point:g}".replace(".", "_")


def percentile(ordered: Sequence[float], point: float) -> float:
    """Return a percentile of ascending values by the nearest rank.

    Raises: ValueError: there are no values.
    """
    if not ordered:
        raise ValueError("no values")
    rank = max(1, -(-len(ordered) * point // 100))
    return ordered[int(rank) - 1]


@dataclass(kw_only=True)
class Report:
    """The results of a bench. Args: figures: numbers, by stable names with units. settings: of the run. findings:
    results that are no numbers, by stable names too."""

    bench: str
    settings: dict[str, object]
    figures: dict[str, float] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)

    def add_latencies(self, name: str, latencies_s: Sequence[float]) -> None:
        """Add the percentiles of latencies as `<name>_p50_ms` and so on, and their number as `<name>_count`."""
        ordered = sorted(latencies_s)
        self.figures[f"{name}_count"] = len(ordered)
        for point in POINTS if ordered else ():
            self.figures[f"{name}_{point_name(point)}_ms"] = round(1000 * percentile(ordered, point), 3)

    def add_difference(self, name: str, one: str, other: str, points: Sequence[float] = (50.0, 99.0)) -> None:
        """Add the difference between `one` and `other` at some percentiles, if both were measured."""
        for point in points:
            suffix = f"_{point_name(point)}_ms"
            if one + suffix in self.figures and other + suffix in self.figures:
                self.figures[name + suffix] = round(self.figures[one + suffix] - self.figures[other + suffix], 3)

    def to_json(self) -> dict[str, object]:
        """Return the report as the plain values that every bench writes."""
        return {
            "bench": self.bench,
            "figures": dict(sorted(self.figures.items())),
            **({"findings": dict(sorted(self.findings.items()))} if self.findings else {}),
            "settings": self.settings,
            "versions": versions(),
        }

    def write(self, file: Path) -> None:
        """Write the report as JSON."""
        file.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def table(self, rows: Mapping[str, str]) -> Table:
        """Return a table of percentiles in milliseconds. Args: rows: label by the name given to `add_latencies`."""
        table = Table(title=f"{self.bench}: milliseconds", title_justify="left")
        table.add_column("")
        for point in POINTS:
            table.add_column(point_name(point).replace("_", "."), justify="right")
        for name, label in rows.items():
            cells = [self.figures.get(f"{name}_{point_name(point)}_ms") for point in POINTS]
            table.add_row(label, *["–" if cell is None else f"{cell:,.1f}" for cell in cells])
        return table


def versions() -> dict[str, str]:
    """Return the versions that a figure depends on."""
    return {
        "falkirk": version("falkirk"),
        "pyspark": version("pyspark"),
        "python": platform.python_version(),
        "processors": str(os.cpu_count()),
    }
