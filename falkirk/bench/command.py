"""The command `falkirk bench`."""

from pathlib import Path

import click
from rich.console import Console

from falkirk.bench.latency import LatencySettings, figure_name, run_latency
from falkirk.bench.monitor import MonitorSettings, run_monitor
from falkirk.bench.plots import draw_latency, draw_monitor
from falkirk.bench.report import Report


@click.group()
def bench() -> None:
    """Measure what Falkirk costs and gives on this machine."""


_json = click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here.")
_plots = click.option(
    "--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the figures into this folder."
)


@bench.command()
@click.option("--quick", is_flag=True, help="One interval, two variants, short windows: less than four minutes.")
@click.option("--input", "source", type=click.Path(path_type=Path, exists=True), help="Text for the word index.")
@_json
@_plots
def latency(quick: bool, source: Path | None, file: Path | None, plots: Path | None) -> None:
    """Latency of exactly-once, of repeated delivery, and of plain Real-time Mode, in one run."""
    console = Console(highlight=False)
    settings = LatencySettings.quick(source) if quick else LatencySettings(source=source)
    run = run_latency(settings, lambda text: console.print(text, soft_wrap=True))
    report = run.report
    rows = {
        figure_name(job, variant, interval_s): f"{job}, {variant}, {interval_s:g} s"
        for job in ("keyed_count", "word_index")
        for interval_s in settings.intervals_s
        for variant in settings.variants
    }
    console.print(report.table(rows))
    for name, value in sorted(report.figures.items()):
        if "minus_none" in name or "bytes" in name or "_kill_" in name or "pause" in name:
            console.print(f"{name} = {value:,}")
    _write(report, file, console)
    if plots is not None:
        for drawn in draw_latency(run, settings, plots):
            console.print(f"plot in {drawn}")


@bench.command()
@click.option("--quick", is_flag=True, help="Fewer sizes and one epoch: less than four minutes.")
@click.option(
    "--input",
    "topology",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Edges to measure instead of drawn ones: two names a line.",
)
@_json
@_plots
def monitor(quick: bool, topology: Path | None, file: Path | None, plots: Path | None) -> None:
    """The rollback solver from scratch, and kept up to date, on applications of growing size."""
    console = Console(highlight=False)
    settings = MonitorSettings.quick(topology) if quick else MonitorSettings(topology=topology)
    report, sizes = run_monitor(settings, lambda text: console.print(text, soft_wrap=True))
    for name, value in sorted(report.figures.items()):
        if not name.startswith("at_"):
            console.print(f"{name} = {value:,}")
    _write(report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_monitor(sizes, plots)}")


def _write(report: Report, file: Path | None, console: Console) -> None:
    if file is not None:
        report.write(file)
        console.print(f"figures in {file}")
