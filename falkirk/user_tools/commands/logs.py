"""The command logs: prints the output of the processes with Spark."""

import codecs
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click

from falkirk.declare.load import load_application
from falkirk.errors.conditions.commands import LOG_MISSING
from falkirk.platform.terminal import plain_text
from falkirk.user_tools.commands.history.application import never_ran
from falkirk.user_tools.commands.options import file_argument, home_option

#: The time between two looks for new lines.
_POLL_S = 0.5
_CHUNK_BYTES = 1 << 16
#: At most so many bytes of the end are searched for the last lines.
_END_BYTES = 4 << 20


@click.command()
@file_argument
@home_option
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=200, show_default=True, help="How many lines from the end."
)
def logs(file: Path, home: Path | None, follow: bool, lines: int) -> None:
    """Print the log of FILE's application.

    It is `host.log` in the home, with the output of Spark and of the application's functions. `falkirk run` and
    `app.run()` write it. An application that was started by `app.start()` or `spark-submit` has none: its log belongs
    to its process.
    """
    app = load_application(file)
    path = home or app.home
    if not (path / "falkirk.json").exists():
        raise never_ran(path)
    log = path / "host.log"
    if not log.exists():
        raise LOG_MISSING.error(where=path)
    try:
        _print(log, lines, follow=follow)
    except (KeyboardInterrupt, BrokenPipeError):
        return


def _print(log: Path, lines: int, *, follow: bool, wait: Callable[[float], None] = time.sleep) -> None:
    with open(log, "rb") as handle:
        click.echo(plain_text(_end_of(handle, lines)), nl=False)
        if follow:
            _follow(log, handle, wait)
    while follow:  # from the beginning of each new file
        with open(log, "rb") as handle:
            _follow(log, handle, wait)


def _follow(log: Path, handle: BinaryIO, wait: Callable[[float], None]) -> None:
    """Print new lines of a log until it is renamed, because a new log was begun."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while True:
        is_last = _is_replaced(log, handle)  # first: all that comes before the change of its name is printed
        while chunk := handle.read(_CHUNK_BYTES):
            click.echo(plain_text(decoder.decode(chunk)), nl=False)
        if is_last:
            return
        wait(_POLL_S)


def _end_of(handle: BinaryIO, lines: int) -> str:
    """Return the last lines, and leave the handle at the end."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(0, size - _END_BYTES))
    found = handle.read().splitlines(keepends=True)
    return b"".join(found[len(found) - min(lines, len(found)) :]).decode(errors="replace")


def _is_replaced(log: Path, handle: BinaryIO) -> bool:
    """Return whether the log has got another name, and a new one was begun."""
    try:
        return os.stat(log).st_ino != os.fstat(handle.fileno()).st_ino
    except FileNotFoundError:
        return False
