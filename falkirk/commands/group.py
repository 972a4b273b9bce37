"""How commands show errors: Falkirk's own are one line in the terminal with exit code 1, not a traceback."""

from typing import Any

import click
from rich.text import Text

from falkirk.errors import FalkirkError
from falkirk.system.terminal import Terminal

_console = Terminal(stderr=True)


def show(error: FalkirkError) -> None:
    """Print an error on standard error: its condition, what happened, where, and what to do."""
    _console.print(Text.assemble((error.condition, "red"), f" {error}"), soft_wrap=True)


class _ShowingErrors(click.Command):
    """Prints Falkirk's errors as one line, with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FalkirkError as error:
            show(error)
            ctx.exit(1)


class Command(_ShowingErrors):
    """A command that prints Falkirk's errors as one line, with exit code 1."""


class Group(_ShowingErrors, click.Group):
    """Commands that print Falkirk's errors as one line, with exit code 1."""
