"""Terminal: the only way in which Falkirk writes text to an operator's terminal.

Error messages and rows quote records, which others write. So rich's markup is disabled, and control characters are
removed: with them, a record could move the cursor, rename the window or hide text. Code makes styles with
`rich.text.Text`. A test checks that no other module of Falkirk makes a console.
"""

import logging
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.style import StyleType
from rich.text import Text

#: With these characters a terminal shows text in another order. Other invisible characters belong to scripts.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain_text(text: str) -> str:
    """Return text without control characters except line ends and tabs; lone surrogates become `?`."""
    if text.isascii() and text.isprintable():
        return text
    kept = (c for c in text if c in "\n\t" or (unicodedata.category(c) != "Cc" and c not in _REORDERING))
    return "".join("?" if "\ud800" <= c <= "\udfff" else c for c in kept)


def one_line(text: str) -> str:
    """Return text on one line, cleaned as by `plain_text`: line ends and tabs become `\\n` and `\\t`."""
    return plain_text(text).replace("\n", "\\n").replace("\t", "\\t")


def stderr_is_terminal() -> bool:
    """Return whether somebody reads stderr now. Otherwise it may be a log, which others read, so no secret is printed.

    `Console.is_terminal` does not tell: variables of the environment, such as FORCE_COLOR, set it.
    """
    return sys.stderr is not None and sys.stderr.isatty()


class _TextFormatter(logging.Formatter):
    """Formats a log record as text alone."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_text(super().format(record))


def log_as_text() -> None:
    """Have warnings logged on stderr as text: messages quote records, and operators look at logs in a terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(_TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class Terminal(Console):
    """A console that treats every text as plain text."""

    def __init__(self, *, stderr: bool = False, file: TextIO | None = None, **options: Any) -> None:
        super().__init__(stderr=stderr, file=file, highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments to show; all printed output passes this method."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain_text(segment.text), segment.style)

    def status(self, status: RenderableType, **options: Any) -> "_Status":
        """Return a status line, for use as a context manager."""
        return _Status(_as_text(status), console=self, **options)


class _Status(Status):
    """A status line; rich would parse its text as markup, even if the console does not."""

    def update(
        self, status: RenderableType | None = None, *, spinner: str | None = None,
        spinner_style: StyleType | None = None, speed: float | None = None,
    ) -> None:  # fmt: skip
        """Show another text."""
        shown = None if status is None else _as_text(status)
        super().update(shown, spinner=spinner, spinner_style=spinner_style, speed=speed)


def _as_text(status: RenderableType) -> RenderableType:
    return Text(status) if isinstance(status, str) else status
