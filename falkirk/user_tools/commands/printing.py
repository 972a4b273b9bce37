"""Printing: where commands print tables and trees."""

from falkirk.platform.terminal import Terminal

#: The width of the output if nobody reads it in a terminal.
WIDTH = 160


def output() -> Terminal:
    """Return the terminal; a file or a pipe gets lines of a width that does not depend on the environment."""
    terminal = Terminal()
    return terminal if terminal.is_terminal else Terminal(width=WIDTH)
