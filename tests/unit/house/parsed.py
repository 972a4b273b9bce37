"""Parsed: the syntax of the package's files, each parsed once. Several rules of the house look at the same files."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree, at any depth."""
    return tuple(ast.walk(tree(path)))
