"""How commands show errors: Falkirk's own are one line in the terminal with exit code 1, not a traceback."""

from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any

import click
from rich.text import Text

from falkirk.declare.address import is_port_or_address
from falkirk.errors import FalkirkError
from falkirk.platform.terminal import Terminal

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


class RunCommand(Command):
    """A command with the option `--dashboard [ADDRESS]`: a word after it that is no address is not its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for place, (word, following) in enumerate(pairwise(args)):
            if word == "--dashboard" and not is_port_or_address(following):
                args = [*args[:place], "--dashboard=", *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)


class CommandGroup(_ShowingErrors, click.Group):
    """Commands that print Falkirk's errors as one line, with exit code 1."""


class LazyGroup(CommandGroup):
    """A group that imports the module of a command only when the command is asked for.

    Args: elsewhere: by the command's name, its module, where an attribute has the same name; or `MODULE:ATTRIBUTE`.
    """

    def __init__(self, *args: Any, elsewhere: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._elsewhere and cmd_name not in self.commands:
            module, _, attribute = self._elsewhere[cmd_name].partition(":")
            self.add_command(getattr(import_module(module), attribute or cmd_name))
        return super().get_command(ctx, cmd_name)
