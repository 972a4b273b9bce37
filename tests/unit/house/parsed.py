"""Parsed: the syntax of the package's files, each parsed once. Several rules of the house look at the same files."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """Return a file's syntax tree. Nobody looks for garbage in it: it stays, and that took half of all rules' time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree, at any depth."""
    return tuple(ast.walk(tree(path)))
