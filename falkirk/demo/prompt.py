"""The prompt: lines that the user types while the screen is being drawn, or that come from a pipe."""

import contextlib
import os
import select
import sys
import termios
import tty
from typing import Any

_ERASE, _KILL = ("\x7f", "\b"), "\x15"


class Prompt:
    """Reads lines from standard input without waiting for them, while it is entered.

    On a terminal keys are neither echoed nor kept until the line ends: `typed` is what there is of the present line.
    Ctrl-C works as always.
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
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._handle, termios.TCSADRAIN, self._before)

    def lines(self) -> list[str]:
        """Return the lines that have been completed since the last call."""
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
