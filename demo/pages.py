"""Pages: reads documents that every machine has, or the user's text."""

import ast
import random
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from falkirk.errors import MachineError

#: Longer pages are cut: at four bytes each, a record stays below Kafka's default limit of 1 MB.
CHARACTERS_MAX = 200_000
#: The suffixes of text files in a folder.
SUFFIXES = {".md", ".rst", ".txt"}
_HEADING = re.compile(r"^\s*((?:= )+)([^=].*?)(?: =)+\s*$")
_WORD = re.compile(r"[a-z0-9_]+")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A document: its name, unique in a run, and its text."""

    name: str
    text: str


def opened(found: Iterator[_T], source: Path | None) -> Iterator[_T]:
    """Return the documents of an input, after checking that there is at least one.

    Raises: MachineError: `INPUT_MISSING`.
    """
    first = next(found, None)
    if first is None:
        raise MachineError(
            "INPUT_MISSING", "the input has no words.", where=source, hint="Name a file or folder of text with --input."
        )
    return chain([first], found)


def words(text: str) -> list[str]:
    """Return the words of a text in order, as the index splits them."""
    return _WORD.findall(text.lower())


def pages(source: Path | None = None, *, seed: int | None = None) -> Iterator[Page]:
    """Yield pages in a fixed order, from a file or folder of text, or from the docstrings of installed Python modules.

    A file is divided into sections at headings like `` = Title = ``; without headings it is one page. In a folder each
    text file is a page. Pages without words are left out. Each page is read only when it is needed.

    Args: seed: determines another, random order; None is the natural order.
    Raises: MachineError: `INPUT_MISSING`.
    """
    if source is None:
        found = _docstrings(seed)
    elif source.is_dir():
        files = _ordered((f for f in source.rglob("*") if f.suffix in SUFFIXES and f.is_file()), seed)
        found = (Page(name=str(f.relative_to(source)), text=_read(f)) for f in files)
    elif source.is_file():
        found = _sections(source) if seed is None else iter(shuffled(list(_sections(source)), seed))
    else:
        raise MachineError("INPUT_MISSING", f"there is no file or folder {source}.", hint="Name one with --input.")
    for page in found:
        # A docstring may contain half of a surrogate pair, which can't be encoded.
        text = page.text[:CHARACTERS_MAX].encode("utf-8", "replace").decode()
        if _WORD.search(text.lower()):
            yield Page(name=page.name, text=text)


def _ordered(files: Iterable[Path], seed: int | None) -> list[Path]:
    natural = sorted(files)
    return natural if seed is None else shuffled(natural, seed)


def shuffled(items: list[_T], seed: int) -> list[_T]:
    """Shuffle a list, and return it. The seed determines the order."""
    random.Random(seed).shuffle(items)
    return items


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


def _docstrings(seed: int | None) -> Iterator[Page]:
    modules = installed()
    names = list(modules)
    for module in names if seed is None else shuffled(names, seed):
        tree = parsed(modules[module])
        text = "" if tree is None else docstrings(tree)
        if text:
            yield Page(name=module, text=text)


def installed() -> dict[str, Path]:
    """Return the files of the installed Python modules by name, the standard library first."""
    modules: dict[str, Path] = {}
    paths = sysconfig.get_paths()
    for name in ("stdlib", "purelib", "platlib"):
        for module, file in python_files(Path(paths[name])).items():
            if not module.startswith("site-packages."):  # it is a separate root
                modules.setdefault(module, file)
    return modules


def python_files(root: Path) -> dict[str, Path]:
    """Return the Python files of a folder by module name."""
    files = {file: file.relative_to(root).with_suffix("").parts for file in sorted(root.rglob("*.py"))}
    return {".".join(parts).removesuffix(".__init__"): file for file, parts in files.items()}


def parsed(file: Path) -> ast.Module | None:
    """Return a module's syntax tree, or None if it can't be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's modules
            return ast.parse(_read(file))
    except (SyntaxError, ValueError, RecursionError, OSError):
        return None


def docstrings(tree: ast.Module) -> str:
    """Return all docstrings of a module, the module's own first."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if text)
