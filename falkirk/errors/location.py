"""Source locations: where the user's files declare something, so that an error can name the line."""

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from falkirk.errors.redaction import redact

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A line of the user's code: file, line number (from 1) and its text without secrets."""

    file: str
    line: int
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text))

    @property
    def place(self) -> str:
        """The file's name and the line."""
        return f"{Path(self.file).name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.text else self.place


def _is_ours(frame: FrameType) -> bool:
    """Return whether a frame is Falkirk's.

    For a dataclass's generated methods the file is "<string>", but the module is known.
    """
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] == "falkirk" or Path(frame.f_code.co_filename).resolve().is_relative_to(_PACKAGE)


def caller() -> SourceLocation:
    """Return the innermost line on the stack that is not in Falkirk."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return SourceLocation(file=file, line=line, text=linecache.getline(file, line).strip())
