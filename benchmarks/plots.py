"""Plots: draws the results of the benches; those of latency follow Figures 9 to 12 of Delivery, consistency, and
determinism."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.jobs import JOBS
from benchmarks.latency import VARIANTS, LatencyRun, LatencySettings, Timeline, figure_name
from benchmarks.monitor import Size
from benchmarks.report import POINTS, percentile, point_name
from falkirk.errors import MachineError

_COLOURS = {"none": "#8a8f98", "repeated": "#d08a2e", "exactly-once": "#1f6f8b", "twins": "#7a4fa3"}


def draw_latency(run: LatencyRun, settings: LatencySettings, folder: Path) -> list[Path]:
    """Draw the percentiles of each job at each interval, and the timeline of the kill; return the files.

    Raises: MachineError: `PLOTS_MISSING`: matplotlib is not installed.
    """
    prepare(folder)
    files = [_percentiles(run, job, settings.intervals_s, folder) for job in settings.jobs]
    if run.timeline is not None:
        files.append(_timeline(run.timeline, folder))
    return files


def draw_monitor(sizes: Sequence[Size], folder: Path) -> Path:
    """Draw the growth of memory and of the times of a solution and of a checkpoint; return the file.

    Raises: MachineError: as `draw_latency`.
    """
    prepare(folder)
    from matplotlib import pyplot

    number = [size.processors for size in sizes]
    arrivals = [sorted(size.arrivals_s) for size in sizes]
    panels: list[tuple[str, dict[str, list[float]]]] = [
        ("from scratch, in seconds", {"": [size.solve_s for size in sizes]}),
        ("a checkpoint arriving, in ms", {
            name: [1000 * percentile(a, point) for a in arrivals] for name, point in (("median", 50), ("p99", 99))
        }),
        ("memory at its peak, in MiB", {"": [size.memory_bytes / 2**20 for size in sizes]}),
    ]  # fmt: skip
    figure, axes = pyplot.subplots(1, len(panels), figsize=(11, 3.2))
    for axis, (title, lines) in zip(axes, panels, strict=True):
        for (name, values), colour in zip(lines.items(), ("#1f6f8b", "#d08a2e"), strict=False):
            axis.plot(number, values, marker="o", markersize=4, color=colour, label=name)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("processors")
        axis.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return save(figure, folder / "monitor-growth.png")


def prepare(folder: Path) -> None:
    """Prepare matplotlib, and create a folder for the files. Raises: MachineError: `PLOTS_MISSING`."""
    try:
        import matplotlib
    except ImportError as error:
        raise MachineError(
            "PLOTS_MISSING", "plots need matplotlib.", hint="Install it with pip install 'falkirk[bench]'."
        ) from error
    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)


def _percentiles(run: LatencyRun, job: str, intervals_s: tuple[float, ...], folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(intervals_s), figsize=(1.5 + 4.2 * len(intervals_s), 3.6), sharey=True, squeeze=False
    )
    for axis, interval_s in zip(axes[0], intervals_s, strict=True):
        for place, variant in enumerate(VARIANTS):
            ordered = sorted(run.latencies_s.get(figure_name(job, variant, interval_s), []))
            if not ordered:
                continue
            heights = [1000 * percentile(ordered, point) for point in POINTS]
            at = [i + 0.21 * (place - 1.5) for i in range(len(POINTS))]
            bars = axis.bar(at, heights, 0.2, label=variant, color=_COLOURS[variant])
            axis.bar_label(bars, [f"{h:.0f}" if h >= 10 else f"{h:.1f}" for h in heights], fontsize=5.5, padding=1)
        axis.set_xticks(range(len(POINTS)), [point_name(point).replace("_", ".") for point in POINTS])
        axis.set_yscale("log")
        axis.set_title(f"checkpoint every {interval_s:g} s", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("latency in ms")
    axes[0][0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(f"{JOBS[job].title}: latency by percentile", fontsize=11)
    figure.tight_layout()
    return save(figure, folder / f"latency-{job.replace('_', '-')}.png")


def _timeline(timeline: Timeline, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 3.4))
    sent, latencies = zip(*timeline.points, strict=True)
    axis.scatter(sent, [1000 * s for s in latencies], s=3, color=_COLOURS["exactly-once"], linewidths=0)
    axis.axvline(0, color="#b3261e", linewidth=1)
    axis.annotate("kill -9", (0, 0), xycoords=("data", "axes fraction"), xytext=(4, 6), textcoords="offset points",
                  color="#b3261e", fontsize=9)  # fmt: skip
    axis.set_yscale("log")
    axis.set_xlabel("page sent, in seconds since the kill")
    axis.set_ylabel("latency in ms")
    axis.set_title("word index, exactly once: latency of each page around a kill", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return save(figure, folder / "latency-timeline.png")


def save(figure: object, file: Path) -> Path:
    """Write a figure, and return its file."""
    from matplotlib import pyplot

    figure.savefig(file, dpi=160)  # type: ignore[attr-defined]
    pyplot.close(figure)  # type: ignore[arg-type]
    return file
