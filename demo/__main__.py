"""The command `python -m demo`."""

import signal
import sys
from pathlib import Path

import click

from demo import search, word_index
from falkirk.platform import private
from falkirk.platform.terminal import Terminal
from falkirk.user_tools.commands.group import Command


@click.command(cls=Command)
@click.argument("name", default="search", type=click.Choice(["search", "word-index"]))
@click.option("--modules", "--pages", type=click.IntRange(1), help="The most to send.  [400; word index 1000]")
@click.option("--rate", type=click.FloatRange(0.1), help="The number per second.  [5; word index 20]")
@click.option("--users", default=8, show_default=True, type=click.IntRange(0), help="The number of simulated users.")
@click.option(
    "--input", "source", type=click.Path(path_type=Path, exists=True), help="Your own text: a file or folder."
)
@click.option("--seed", type=int, help="Send in a random order that this seed determines.")
@click.option("--prompt/--no-prompt", default=None, help="Ask the search engine yourself while it runs.")
@click.option("--keep", is_flag=True, help="Keep the home and the broker at the end.")
def demo(
    name: str, modules: int | None, rate: float | None, users: int, source: Path | None, seed: int | None,
    prompt: bool | None, keep: bool,
) -> None:  # fmt: skip
    """Watch a live search engine (or a word index) recover after its Spark process is killed with -9.

    At the end a judge recomputes all results. Exit code 1: a result is wrong.
    """
    console = Terminal()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if name == "word-index":
            good = word_index.run_demo(
                word_index.DemoSettings(pages=modules or 1000, rate=rate or 20.0, source=source, seed=seed, keep=keep),
                console,
            )
        else:
            asks = prompt if prompt is not None else console.is_terminal and sys.stdin.isatty()
            settings = search.SearchSettings(
                modules=modules or 400, rate=rate or 5.0, users=users, source=source, seed=seed, prompt=asks, keep=keep
            )
            good = search.run_demo(settings, console)
    except KeyboardInterrupt:
        console.print("stopped; the demo has removed its files and its broker" if not keep else "stopped")
        sys.exit(130)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    with private.entered():
        demo(prog_name="python -m demo")
