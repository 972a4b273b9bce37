"""Prompt: reads lines that the user types while the screen is redrawn, or lines from a pipe."""

import contextlib
import os
import select
import sys
import termios
import tty
from typing import Any

_ERASE, _KILL = ("\x7f", "\b"), "\x15"


class Prompt:
    """Reads lines from standard input without waiting for them, within a ``with`` block.

    On a terminal, keys are neither echoed nor buffered until the end of the line. `typed` is the current line so far.
    Ctrl-C works as usual.
    """

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._ended = False
        self.typed = ""

    def __enter__(self) -> "Prompt":
        if os.isatty(self._handle):
            self._before = termios.tcgetattr(self._handle)
            tty.setcbreak(self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(self._handle, termios.TCSADRAIN, self._before)

    def lines(self) -> list[str]:
        """Return the lines that were completed since the last call."""
        found = []
        while not self._ended and select.select([self._handle], [], [], 0)[0]:
            data = os.read(self._handle, 4096)
            self._ended = not data
            for key in data.decode("utf-8", "ignore"):
                if key in "\r\n":
                    found.append(self.typed.strip())
                    self.typed = ""
                elif key in _ERASE:
                    self.typed = self.typed[:-1]
                elif key == _KILL:
                    self.typed = ""
                elif key.isprintable():
                    self.typed += key
        return [line for line in found if line]
