"""Source locations: where in the user's files a thing was declared, so that an error can name the line."""

import linecache
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PACKAGE = Path(__file__).resolve().parent
#: The password in a URL, which a line of the user's may hold and nobody else's eyes should see.
_PASSWORD = re.compile(r"(://[^:/@\s]+:)[^@\s]+@")
_TOKEN = re.compile(r"(token\s*=\s*)([\"']).*?\2")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A line of the user's code: file, line number (from 1) and its text."""

    file: str
    line: int
    text: str = ""

    @property
    def place(self) -> str:
        """The file's name and the line."""
        return f"{Path(self.file).name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.text else self.place


def _is_ours(frame: FrameType) -> bool:
    """Tell whether a frame is Falkirk's; the file of a dataclass's generated methods is "<string>", its module is
    known."""
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] == "falkirk" or Path(frame.f_code.co_filename).resolve().is_relative_to(_PACKAGE)


def caller() -> SourceLocation:
    """Return the innermost line on the stack that is not Falkirk's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = _PASSWORD.sub(r"\1***@", linecache.getline(file, line).strip())
    return SourceLocation(file=file, line=line, text=_TOKEN.sub(r"\1***", text))
