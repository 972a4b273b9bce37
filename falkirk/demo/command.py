"""The command `falkirk demo`."""

import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from falkirk.demo.word_index import DemoSettings, run_demo


@click.command()
@click.argument("name", default="word-index", type=click.Choice(["word-index"]))
@click.option(
    "--pages", default=1000, show_default=True, type=click.IntRange(1), help="How many pages to send at most."
)
@click.option("--rate", default=20.0, show_default=True, type=click.FloatRange(0.1), help="Pages per second.")
@click.option(
    "--input", "source", type=click.Path(path_type=Path, exists=True), help="Your own text: a file or folder."
)
@click.option("--seed", type=int, help="Another order of the pages; the same for the same seed.")
@click.option("--keep", is_flag=True, help="Keep the home and the broker for a look around.")
def demo(name: str, pages: int, rate: float, source: Path | None, seed: int | None, keep: bool) -> None:
    """Watch real documents become a live index, while its Spark process is killed with -9 and comes back.

    Exit code 1 when the checker's verdict is not exactly-once.
    """
    del name
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        good = run_demo(DemoSettings(pages=pages, rate=rate, source=source, seed=seed, keep=keep), console)
    except KeyboardInterrupt:
        console.print("stopped; nothing is left behind" if not keep else "stopped")
        sys.exit(130)
    sys.exit(0 if good else 1)
