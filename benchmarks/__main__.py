"""The command `python -m benchmarks`."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.charts import draw_guarantees, draw_iterate, draw_overhead, draw_peers, draw_pressure, draw_regimes
from benchmarks.guarantees import GuaranteesSettings, all_seen, guarantees_table, run_guarantees
from benchmarks.homes import STORE, HomesSettings, run_homes
from benchmarks.iterate import IterateSettings, iterate_table, run_iterate
from benchmarks.jobs import JOBS, MAIN, OPERATORS
from benchmarks.latency import VARIANTS, LatencySettings, figure_name, run_latency
from benchmarks.mechanisms import JOBS as GUARANTEES_JOBS
from benchmarks.mechanisms import MECHANISMS
from benchmarks.monitor import MonitorSettings, run_monitor
from benchmarks.nexmark.bench import NexmarkSettings, run_nexmark
from benchmarks.nexmark.queries import QUERIES
from benchmarks.overhead import OverheadSettings, overhead_table, run_overhead
from benchmarks.pairs import PAIRS
from benchmarks.peers.bench import PeersSettings, run_peers
from benchmarks.peers.order import KINDS, SYSTEMS, markdown, read_peers
from benchmarks.planning import run_planning
from benchmarks.plots import draw_latency, draw_monitor
from benchmarks.pressure import PressureSettings, run_pressure
from benchmarks.recovery import RecoverySettings, run_recovery
from benchmarks.regimes import REGIMES, RegimesSettings, regimes_table, run_regimes
from benchmarks.report import Report
from falkirk.platform.terminal import Terminal
from falkirk.user_tools.commands.group import CommandGroup


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure the cost and the effects of Falkirk on this machine."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a bench cleans up after SIGTERM too


_EXISTING = click.Path(path_type=Path, exists=True, dir_okay=False)
_json = click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here.")
_plots = click.option(
    "--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the figures into this folder."
)


@bench.command()
@click.option("--quick", is_flag=True, help="One interval, two variants, short windows: less than four minutes.")
@click.option("--input", "source", type=click.Path(path_type=Path, exists=True), help="Text for the word index.")
@click.option("--job", "jobs", multiple=True, type=click.Choice(tuple(JOBS)), help="Measure this job alone.")
@click.option("--operators", is_flag=True, help="Measure windows, a join, and what calls Python, one after the other.")
@click.option("--variant", "variants", multiple=True, type=click.Choice(VARIANTS), help="Measure this variant alone.")
@click.option("--interval", "intervals_s", multiple=True, type=float, help="Seconds between checkpoints.")
@click.option("--no-kill", is_flag=True, help="Leave out the run with a kill.")
@click.option("--warm-up", "warm_up_s", type=float, help="Seconds at the beginning whose records are not counted.")
@click.option("--window", "window_s", type=float, help="Counted seconds. At least two intervals are counted.")
@_json
@_plots
def latency(
    quick: bool, source: Path | None, jobs: tuple[str, ...], operators: bool, variants: tuple[str, ...],
    intervals_s: tuple[float, ...], no_kill: bool, warm_up_s: float | None, window_s: float | None,
    file: Path | None, plots: Path | None,
) -> None:  # fmt: skip
    """Measure the latency of exactly-once and repeated delivery, and of plain Real-time Mode."""
    console = Terminal()
    chosen = jobs or tuple(job.name for job in (OPERATORS if operators else MAIN))
    settings = LatencySettings.quick(source, chosen) if quick else LatencySettings(source=source, jobs=chosen)
    settings = replace(
        settings, variants=variants or settings.variants, intervals_s=intervals_s or settings.intervals_s,
        timeline_s=0.0 if no_kill else settings.timeline_s,
        warm_up_s=settings.warm_up_s if warm_up_s is None else warm_up_s,
        window_s=settings.window_s if window_s is None else window_s,
    )  # fmt: skip
    run = run_latency(settings, lambda text: console.print(text, soft_wrap=True))
    report = run.report
    rows = {
        figure_name(job, variant, interval_s): f"{job}, {variant}, {interval_s:g} s"
        for job in settings.jobs
        for interval_s in settings.intervals_s
        for variant in settings.variants
        if JOBS[job].has(variant)
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
    type=_EXISTING,
    help="Edges to measure instead of random ones: two names a line.",
)
@_json
@_plots
def monitor(quick: bool, topology: Path | None, file: Path | None, plots: Path | None) -> None:
    """Measure the rollback solver and the incremental monitor on applications of growing size."""
    console = Terminal()
    settings = MonitorSettings.quick(topology) if quick else MonitorSettings(topology=topology)
    report, sizes = run_monitor(settings, lambda text: console.print(text, soft_wrap=True))
    for name, value in sorted(report.figures.items()):
        if not name.startswith("at_"):
            console.print(f"{name} = {value:,}")
    _write(report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_monitor(sizes, plots)}")


@bench.command()
@click.option("--query", "queries", type=click.Choice(list(QUERIES)), multiple=True, help="Only this. Can be repeated.")
@click.option("--rate", type=float, default=100.0, show_default=True, help="Events per second.")
@_json
def nexmark(queries: tuple[str, ...], rate: float, file: Path | None) -> None:
    """Run the queries of Nexmark, and compare their results with Spark SQL."""
    console = Terminal()
    settings = NexmarkSettings(queries=queries or tuple(QUERIES), rate=rate)
    _write(run_nexmark(settings, lambda text: console.print(text, soft_wrap=True)), file, console)


@bench.command()
@_json
def planning(file: Path | None) -> None:
    """Measure the time of planning an application of ten processors, beyond Spark's start."""
    console = Terminal()
    _write(run_planning(lambda text: console.print(text, soft_wrap=True)), file, console)


@bench.command()
@click.option("--quick", is_flag=True, help="Two rounds and short windows: about five minutes.")
@click.option("--pair", "pairs", type=click.Choice(PAIRS), multiple=True, help="Only this pair. Can be repeated.")
@_json
@_plots
def overhead(quick: bool, pairs: tuple[str, ...], file: Path | None, plots: Path | None) -> None:
    """Run the same jobs in plain Spark and with Falkirk, and print ratios.

    The pairs are live queries, micro-batches, batches, and batches beside live queries.
    """
    console = Terminal()
    settings = OverheadSettings.quick() if quick else OverheadSettings()
    settings = replace(settings, pairs=pairs or settings.pairs)
    run = run_overhead(settings, lambda text: console.print(text, soft_wrap=True))
    console.print(overhead_table(run, settings.pairs))
    _write(run.report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_overhead(run, settings.pairs, plots)}")


@bench.command()
@click.option("--quick", is_flag=True, help="Short windows: about five minutes.")
@click.option("--regime", "regimes", type=click.Choice(REGIMES), multiple=True, help="Only this one. Can be repeated.")
@_json
@_plots
def regimes(quick: bool, regimes: tuple[str, ...], file: Path | None, plots: Path | None) -> None:
    """Run one input under each policy: latency, throughput, durable bytes, and the cost of a kill -9."""
    console = Terminal()
    settings = RegimesSettings.quick() if quick else RegimesSettings()
    settings = replace(settings, regimes=regimes or settings.regimes)
    report = run_regimes(settings, lambda text: console.print(text, soft_wrap=True))
    console.print(regimes_table(report))
    _write(report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_regimes(report, plots)}")


@bench.command()
@click.option("--quick", is_flag=True, help="Short windows: less than eight minutes.")
@click.option(
    "--mechanism", "mechanisms", type=click.Choice(MECHANISMS), multiple=True, help="Only this one. Can be repeated."
)
@click.option(
    "--job", type=click.Choice(GUARANTEES_JOBS), default="count", help="A running count, or a job without state."
)
@_json
@_plots
def guarantees(quick: bool, mechanisms: tuple[str, ...], job: str, file: Path | None, plots: Path | None) -> None:
    """Run one job under each mechanism of the papers, with a kill -9 and the checker's verdict.

    It measures latency, throughput and durable bytes. Exit code 1: a mechanism does not show its signature.
    """
    console = Terminal()
    settings = GuaranteesSettings.quick() if quick else GuaranteesSettings()
    settings = replace(settings, mechanisms=mechanisms or settings.mechanisms, job=job)
    report = run_guarantees(settings, lambda text: console.print(text, soft_wrap=True))
    console.print(guarantees_table(report))
    _write(report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_guarantees(report, plots)}")
    if not all_seen(report):
        raise SystemExit(1)


@bench.command()
@click.option("--quick", is_flag=True, help="Less load for a shorter time: about two minutes.")
@_json
@_plots
def backpressure(quick: bool, file: Path | None, plots: Path | None) -> None:
    """Show waiting records and memory while a table accepts nothing, and how the stream catches up."""
    console = Terminal()
    settings = PressureSettings.quick() if quick else PressureSettings()
    run = run_pressure(settings, lambda text: console.print(text, soft_wrap=True))
    for name, value in sorted(run.report.figures.items()):
        console.print(f"{name} = {value:,}")
    _write(run.report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_pressure(run, plots)}")


@bench.command()
@click.option("--quick", is_flag=True, help="One random graph, fewer changes: about four minutes.")
@click.option(
    "--input",
    "inputs",
    type=_EXISTING,
    multiple=True,
    help="Edges to measure besides random ones: two whole numbers a line, optionally a time. Can be repeated.",
)
@_json
@_plots
def iterate(quick: bool, inputs: tuple[Path, ...], file: Path | None, plots: Path | None) -> None:
    """Measure incremental components and ranks of changing graphs against a computation from scratch."""
    console = Terminal()
    settings = IterateSettings.quick(inputs) if quick else IterateSettings(inputs=inputs)
    run = run_iterate(settings, lambda text: console.print(text, soft_wrap=True))
    console.print(iterate_table(run.cases))
    _write(run.report, file, console)
    if plots is not None:
        console.print(f"plot in {draw_iterate(run, plots)}")


@bench.command()
@click.option("--quick", is_flag=True, help="One kill of each variant: about two minutes.")
@_json
@click.option("--data", help="Compare a home at this address, such as s3a://bucket/bench, with a local one.")
def recovery(quick: bool, file: Path | None, data: str | None) -> None:
    """Kill the host of a keyed count with -9, without and with a standby, and time the next result.

    With --data: without a standby, once with a home in an object store and once with a local one. This also measures
    the pause at a checkpoint and the epochs of a batch. FALKIRK_BENCH_STORE has the URL of a PostgreSQL database for
    the decisions.
    """
    console = Terminal()
    if data is not None and not os.environ.get(STORE):
        raise click.UsageError(f"--data needs the URL of a PostgreSQL database in the environment variable {STORE}.")

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    if data is not None:
        homes = HomesSettings(data=data)
        report = run_homes(replace(homes, turns=1, steady_s=20.0, kills=1) if quick else homes, say)
    else:
        report = run_recovery(RecoverySettings.quick() if quick else RecoverySettings(), say)
    for name, value in sorted(report.figures.items()):
        console.print(f"{name} = {value:,}")
    _write(report, file, console)


@bench.command()
@click.option("--quick", is_flag=True, help="One short run of each case: about fifteen minutes.")
@click.option("--long", "is_long", is_flag=True, help="Also 60 s between checkpoints and 5,000 records/s: hours.")
@click.option("--system", "systems", type=click.Choice(list(SYSTEMS)), multiple=True, help="Only this one.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only cases of this kind.")
@click.option("--interval", "intervals_s", multiple=True, type=float, help="Seconds between checkpoints.")
@click.option("--repetitions", type=click.IntRange(min=1), help="Runs of each case.")
@click.option("--from", "measured", type=_EXISTING, help="Measure nothing; render this JSON of an earlier run.")
@click.option("--table", type=click.Path(path_type=Path, dir_okay=False), help="Write the table as Markdown here.")
@_json
@_plots
def peers(
    quick: bool, is_long: bool, systems: tuple[str, ...], kinds: tuple[str, ...], intervals_s: tuple[float, ...],
    repetitions: int | None, measured: Path | None, table: Path | None, file: Path | None, plots: Path | None,
) -> None:  # fmt: skip
    """Run a keyed count in Falkirk, Flink, Kafka Streams and plain Spark: latency, recovery and throughput.

    The first run downloads Flink and Kafka Streams, 190 MB, into the cache.
    """
    console = Terminal()
    if measured is not None:
        figures, cases = read_peers(measured.read_text())
    else:
        settings = PeersSettings.quick() if quick else PeersSettings.long() if is_long else PeersSettings()
        settings = replace(
            settings, systems=systems or settings.systems, kinds=kinds or settings.kinds,
            intervals_s=intervals_s or settings.intervals_s, repetitions=repetitions or settings.repetitions,
        )  # fmt: skip
        report, cases = run_peers(settings, lambda text: console.print(text, soft_wrap=True))
        figures = report.figures
        _write(report, file, console)
    if table is not None:
        table.write_text(markdown(figures, cases))
        console.print(f"table in {table}")
    if plots is not None:
        console.print(f"plot in {draw_peers(figures, cases, plots)}")


def _write(report: Report, file: Path | None, console: Terminal) -> None:
    if file is not None:
        report.write(file)
        console.print(f"figures in {file}")


if __name__ == "__main__":
    bench(prog_name="python -m benchmarks")
