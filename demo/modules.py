"""Modules: reads the documents of the search engine, with their text and imports, and generates versions of them.

They are the modules of this Python, those in a folder of the user, or pages of text with the links between them.
"""

import ast
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from demo.pages import Page, docstrings, installed, pages, parsed, python_files, shuffled, words

#: The greatest number of characters of a version: many modules make a better search than long ones.
TEXT_MAX = 1_200
#: One event in this many is an edit of a module that was sent before.
EDIT_EVERY = 8
_LINK = re.compile(r"\]\(([^)#\s]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module: its name, its text in paragraphs, and the modules that it imports."""

    name: str
    paragraphs: tuple[str, ...]
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A version of a module, as it is sent. Versions begin at 1."""

    name: str
    version: int
    text: str
    imports: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the event as a record."""
        return {"name": self.name, "version": self.version, "text": self.text, "imports": list(self.imports)}


def modules(source: Path | None = None, *, seed: int | None = None) -> Iterator[Module]:
    """Yield modules in a fixed order, from a folder of Python files, from text, or from this Python, with well-known
    modules first. It reads each file only when it is needed.

    Args: seed: determines another, random order.
    Raises: MachineError: `INPUT_MISSING`.
    """
    files = installed() if source is None else python_files(source) if source.is_dir() else {}
    if not files:
        for page in pages(source, seed=seed):
            yield _module(page.name, page.text, _links(page))
        return
    named = [name for name in files if not {"test", "tests"} & set(name.split("."))]
    order = sorted(named, key=_renown)
    for name in order if seed is None else shuffled(order, seed):
        tree = parsed(files[name])
        text = "" if tree is None else docstrings(tree)
        if tree is not None and words(text):
            yield _module(name, text, _imports(tree, name, files[name].name == "__init__.py", files.__contains__))


def events(found: Iterator[Module], count: int, *, seed: int = 0) -> Iterator[Event]:
    """Yield `count` versions of modules: mostly the first version of the next module, sometimes a new version of an
    earlier one. The seed determines the result."""
    rng, sent = random.Random(seed), list[tuple[Module, int]]()
    for number in range(count):
        edits = bool(sent) and number % EDIT_EVERY == EDIT_EVERY - 1
        module = None if edits else next(found, None)
        if module is None and not sent:
            return
        if module is not None:
            sent.append((module, 1))
            at = len(sent) - 1
        else:
            at = rng.randrange(len(sent))
            sent[at] = (sent[at][0], sent[at][1] + 1)
        yield _version(*sent[at])


def _renown(name: str) -> tuple[bool, bool, int, str]:
    """Return the sort key of a module; well-known modules come first."""
    top = name.partition(".")[0]
    return top not in sys.stdlib_module_names, top.startswith("_"), name.count("."), name


def _version(module: Module, version: int) -> Event:
    """Return a version of a module. All versions have the first paragraph; each has other further paragraphs, and every
    second version lacks one import."""
    first, *rest = module.paragraphs
    begin = (version - 1) * 5 % max(1, len(rest))
    text = first
    for paragraph in islice(rest, begin, None):
        if len(text) + len(paragraph) > TEXT_MAX:
            break
        text += "\n\n" + paragraph
    imports = module.imports if version % 2 else module.imports[:-1]
    return Event(name=module.name, version=version, text=text[:TEXT_MAX], imports=imports)


def _module(name: str, text: str, imports: tuple[str, ...]) -> Module:
    # A docstring may contain half of a surrogate pair, which can't be encoded.
    plain = text.encode("utf-8", "replace").decode()
    return Module(name=name, paragraphs=tuple(re.split(r"\n\s*\n", plain)), imports=imports)


def _imports(tree: ast.Module, module: str, is_package: bool, known: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the known modules that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            within = {".".join([*base, alias.name]) for alias in node.names}
            found |= {name for name in within if known(name)} or {".".join(base)}
    return tuple(sorted(name for name in found if name != module and known(name)))


def _links(page: Page) -> tuple[str, ...]:
    """Return the pages to which a page of Markdown links."""
    folder, found = PurePosixPath(page.name).parent, set[str]()
    for link in _LINK.findall(page.text):
        if "://" not in link:
            parts: list[str] = []
            for part in (folder / link).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            found.add("/".join(parts))
    return tuple(sorted(found - {page.name}))
