"""Charts: draws the results of the benches of overhead, regimes, guarantees, backpressure, iterations and peers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.iterate import ALGORITHMS, IterateRun
from benchmarks.mechanisms import MECHANISMS
from benchmarks.overhead import MEASURES, OverheadRun
from benchmarks.peers.order import Case
from benchmarks.plots import prepare, save
from benchmarks.pressure import PressureRun
from benchmarks.regimes import REGIMES
from benchmarks.report import Report

_BLUE, _ORANGE, _GREY, _RED = "#1f6f8b", "#d08a2e", "#8a8f98", "#b3261e"
#: The line styles of the changes of a graph that are drawn.
_STYLES = {"insert": "o-", "delete": "v--"}
#: The names of the systems that are compared.
_PEERS = {
    "falkirk": "Falkirk", "flink": "Flink", "streams": "Kafka Streams", "spark-rtm": "plain Real-time Mode",
    "spark-batch": "plain micro-batch",
}  # fmt: skip


def draw_overhead(run: OverheadRun, pairs: tuple[str, ...], folder: Path) -> Path:
    """Draw the ratio of each round, and the median of all; return the file.

    Raises: MachineError: `PLOTS_MISSING`: matplotlib is not installed.
    """
    prepare(folder)
    from matplotlib import pyplot

    rows = [(pair, m) for pair in pairs for m in MEASURES if run.ratios(pair, m)]
    figure, axis = pyplot.subplots(figsize=(8, 0.8 + 0.35 * len(rows)))
    axis.axvspan(0.95, 1.05, color=_GREY, alpha=0.2, linewidth=0)
    axis.axvline(1.0, color=_GREY, linewidth=1)
    for height, (pair, measure) in enumerate(reversed(rows)):
        ratios = sorted(run.ratios(pair, measure))
        axis.scatter(ratios, [height] * len(ratios), s=12, color=_BLUE, alpha=0.5, linewidths=0)
        axis.scatter([median(ratios)], [height], s=45, color=_ORANGE, marker="|")
    axis.set_yticks(range(len(rows)), [f"{p}, {m.replace('_', ' ')}" for p, m in reversed(rows)], fontsize=8)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlabel("Falkirk as a multiple of plain Spark, round by round; grey: within 5 %")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return save(figure, folder / "overhead.png")


def draw_regimes(report: Report, folder: Path) -> Path:
    """Draw latency, throughput, durable bytes and the cost of a kill, by regime; return the file.

    Raises: as `draw_overhead`.
    """
    return _draw_bars(report, REGIMES, folder / "regimes.png")


def draw_guarantees(report: Report, folder: Path) -> Path:
    """Draw the same figures by mechanism; return the file. Raises: as `draw_overhead`."""
    return _draw_bars(report, MECHANISMS, folder / "guarantees.png")


def _draw_bars(report: Report, known: tuple[str, ...], file: Path) -> Path:
    prepare(file.parent)
    from matplotlib import pyplot

    panels = {
        "p50_ms": "latency, median, ms",
        "records_per_s": "records/s",
        "durable_bytes_per_record": "durable bytes a record",
        "recovery_s": "results again after kill -9, s",
    }
    names = [name for name in known if f"{name}_p50_ms" in report.figures]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(12, 0.8 + 0.4 * len(names)), sharey=True)
    for axis, (measure, title) in zip(axes, panels.items(), strict=True):
        values = [report.figures[f"{name}_{measure}"] for name in reversed(names)]
        bars = axis.barh([name.replace("_", " ") for name in reversed(names)], values, color=_BLUE, height=0.6)
        axis.bar_label(bars, [f"{v:,.0f}" if v >= 10 else f"{v:.1f}" for v in values], fontsize=7, padding=2)
        axis.set_title(title, fontsize=9)
        axis.set_xscale("log" if measure == "p50_ms" else "linear")
        if measure != "p50_ms":
            axis.locator_params(axis="x", nbins=4)
        axis.margins(x=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return save(figure, file)


def draw_pressure(run: PressureRun, folder: Path) -> Path:
    """Draw waiting records and memory over time; return the file. Raises: as `draw_overhead`."""
    prepare(folder)
    from matplotlib import pyplot

    at = [s.at_s for s in run.samples]
    figure, (records, memory) = pyplot.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(2, 1))
    for label, values, colour in (
        ("in Kafka", [s.sent for s in run.samples], _GREY),
        ("in complete epochs", [s.read for s in run.samples], _ORANGE),
        ("in the table", [s.kept for s in run.samples], _BLUE),
    ):
        records.plot(at, values, color=colour, label=label, linewidth=1.5)
    records.set_ylabel("records")
    records.legend(frameon=False, fontsize=8, loc="upper left")
    memory.plot(at, [s.jvm_bytes / 2**20 for s in run.samples], color=_BLUE, label="JVM", linewidth=1.5)
    memory.plot(at, [s.host_bytes / 2**20 for s in run.samples], color=_ORANGE, label="Python", linewidth=1.5)
    memory.set_ylabel("memory, MiB")
    memory.set_ylim(bottom=0)
    memory.set_xlabel("seconds since the table was locked")
    memory.legend(frameon=False, fontsize=8, loc="upper left")
    for axis in (records, memory):
        axis.axvspan(0, run.closed_s, color=_RED, alpha=0.08, linewidth=0)
        axis.spines[["top", "right"]].set_visible(False)
    records.set_title("a table that takes nothing for a while", fontsize=11)
    figure.tight_layout()
    return save(figure, folder / "backpressure.png")


def draw_iterate(run: IterateRun, folder: Path) -> Path:
    """Draw the seconds of a change against the size of the graph; return the file. Raises: as `draw_overhead`."""
    prepare(folder)
    from matplotlib import pyplot

    names = [name for name in ALGORITHMS if any(case.algorithm == name for case in run.cases)]
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(3.5 + 4 * len(names), 4), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names, strict=True):
        cases = sorted((case for case in run.cases if case.algorithm == name), key=lambda case: case.edges)
        lines: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for case in cases:
            for change in case.typical():
                if change.kind in _STYLES:
                    lines.setdefault((change.kind, change.edges), []).append((case.edges, change.seconds))
        sizes = sorted({edges for _, edges in lines})
        for (kind, edges), points in lines.items():
            colour = (_BLUE, _ORANGE, _RED)[sizes.index(edges) % 3]
            label = f"{kind} {edges:,}"
            axis.plot(*zip(*points, strict=True), _STYLES[kind], color=colour, label=label, linewidth=1.2, markersize=4)
        at = [case.edges for case in cases]
        again, single = [case.recompute_s for case in cases], [median(case.single_s) for case in cases]
        axis.plot(at, again, "s-", color="black", label="DataFrames, from scratch", linewidth=1.2, markersize=4)
        axis.plot(
            at, single, "s-", color=_GREY, label="one thread in memory, from scratch", linewidth=1.2, markersize=4
        )
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter("")  # on a short axis each minor tick would be labelled
        axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("edges")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("seconds")
    figure.legend(*axes[0][0].get_legend_handles_labels(), frameon=False, fontsize=7, loc="outside right center")
    return save(figure, folder / "iterate.png")


def draw_peers(figures: Mapping[str, float], cases: Sequence[Case], folder: Path) -> Path:
    """Draw p50 and p99 of each case of latency, with the spread; return the file. Raises: as `draw_overhead`."""
    prepare(folder)
    from matplotlib import pyplot

    shown = sorted(
        (case for case in cases if case.kind == "latency" and f"{case.name}_p99_ms" in figures),
        key=lambda case: (case.rate, not case.guarantee.startswith("exactly"), figures[f"{case.name}_p99_ms"]),
    )
    rates, intervals_s = {case.rate for case in shown}, {case.interval_s for case in shown}
    usual_s = max(intervals_s, default=0.0)
    figure, axis = pyplot.subplots(figsize=(9, 1.2 + 0.4 * len(shown)))
    for point, colour, lift in (("p50_ms", _BLUE, 0.2), ("p99_ms", _ORANGE, -0.2)):
        stems = [f"{case.name}_{point}" for case in shown]
        middle = [figures[stem] for stem in stems]
        spread = [
            [figures[stem] - figures[f"{stem}_least"] for stem in stems],
            [figures[f"{stem}_most"] - figures[stem] for stem in stems],
        ]
        places = [len(shown) - n + lift for n in range(len(shown))]
        bars = axis.barh(places, middle, height=0.36, color=colour, label=point.removesuffix("_ms"), xerr=spread)
        texts = [f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in middle]
        axis.bar_label(bars, texts, fontsize=7, padding=3)
    labels = []
    for case in shown:
        rate = f", {case.rate:g}/s" if len(rates) > 1 else ""
        interval = "" if case.interval_s == usual_s else f", every {case.interval_s:g} s"
        labels.append(f"{_PEERS.get(case.system, case.system)}, {case.guarantee}{interval}{rate}")
    axis.set_yticks([len(shown) - n for n in range(len(shown))], labels, fontsize=8)
    axis.set_xscale("log")
    axis.set_xticks([1, 10, 100, 1000, 10_000], ["1", "10", "100", "1,000", "10,000"])
    label = f"latency in ms (median, least and greatest of the runs); a checkpoint every {usual_s:g} s"
    axis.set_xlabel(label, fontsize=9)
    axis.margins(x=0.1)
    axis.legend(frameon=False, fontsize=8, loc="upper right")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return save(figure, folder / "peers.png")
