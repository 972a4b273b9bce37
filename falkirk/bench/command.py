"""The command `falkirk bench`."""

from pathlib import Path

import click
from rich.console import Console

from falkirk.bench.latency import VARIANTS, LatencySettings, figure_name, run_latency
from falkirk.bench.plots import draw_latency


@click.group()
def bench() -> None:
    """Measure what Falkirk costs and gives on this machine."""


@bench.command()
@click.option("--quick", is_flag=True, help="One interval and short windows: less than four minutes.")
@click.option("--input", "source", type=click.Path(path_type=Path, exists=True), help="Text for the word index.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the figures into this folder.")
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
        for variant in VARIANTS
    }
    console.print(report.table(rows))
    for name, value in sorted(report.figures.items()):
        if "minus_none" in name or "bytes" in name or "_kill_" in name or "pause" in name:
            console.print(f"{name} = {value:,}")
    if file is not None:
        report.write(file)
        console.print(f"figures in {file}")
    if plots is not None:
        for drawn in draw_latency(run, settings, plots):
            console.print(f"plot in {drawn}")
