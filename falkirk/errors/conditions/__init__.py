"""The catalogue: every condition of Falkirk's errors, with its texts. A module has those that a package raises.

`docs/operations.md` says what each means for an operator; tests/unit/house/test_conditions.py compares the two.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from falkirk.errors import FalkirkError
from falkirk.errors.condition import Condition


def catalogue() -> Iterator[tuple[str, Condition[FalkirkError]]]:
    """Yield all conditions with the names of their constants, package by package."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        for name, value in vars(importlib.import_module(f"{__name__}.{module.name}")).items():
            if isinstance(value, Condition):
                yield name, value
