"""Pages: documents that every machine has, or the user's own text."""

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from falkirk.errors import MachineError

#: Longer pages are cut: a record must stay below Kafka's default limit of 1 MB.
CHARACTERS_MAX = 200_000
_HEADING = re.compile(r"^\s*((?:= )+)([^=].*?)(?: =)+\s*$")
_WORD = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A document: its name, unique in a run, and its text."""

    name: str
    text: str


def words(text: str) -> list[str]:
    """Return the words of a text in order, as the index understands them."""
    return _WORD.findall(text.lower())


def pages(source: Path | None = None) -> Iterator[Page]:
    """Yield pages in a fixed order: of a file or folder of text, else the docstrings of the installed Python modules.

    A file is cut into sections at headings such as `` = Title = ``; without headings it is one page. A folder gives
    a page per text file. Pages without words are left out.

    Raises: MachineError: `INPUT_MISSING`.
    """
    if source is None:
        found = _docstrings()
    elif source.is_dir():
        found = (Page(name=str(f.relative_to(source)), text=_read(f)) for f in sorted(source.rglob("*.txt")))
    elif source.is_file():
        found = _sections(source)
    else:
        raise MachineError("INPUT_MISSING", f"there is no file or folder {source}.", hint="Name one with --input.")
    for page in found:
        if _WORD.search(page.text.lower()):
            yield Page(name=page.name, text=page.text[:CHARACTERS_MAX])


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _sections(file: Path) -> Iterator[Page]:
    title, number, lines = file.stem, 0, list[str]()
    for line in _read(file).splitlines():
        heading = _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield Page(name=f"{number:05d} {title}", text="\n".join(lines))
        top = len(heading[1]) == 2
        title = heading[2] if top else f"{title.partition(' / ')[0]} / {heading[2]}"
        number, lines = number + 1, []
    yield Page(name=f"{number:05d} {title}", text="\n".join(lines))


def _docstrings() -> Iterator[Page]:
    seen: set[str] = set()
    paths = sysconfig.get_paths()
    for name in ("stdlib", "purelib", "platlib"):
        root = Path(paths[name])
        for file in sorted(root.rglob("*.py")):
            module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            if module in seen or module.startswith("site-packages."):
                continue
            seen.add(module)
            text = _documentation(file)
            if text:
                yield Page(name=module, text=text)


def _documentation(file: Path) -> str:
    """Return all docstrings of a module, the module's first; empty when it can't be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's modules
            tree = ast.parse(_read(file))
    except (SyntaxError, ValueError, RecursionError, OSError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if text)
