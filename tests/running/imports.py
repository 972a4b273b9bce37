"""A pytest plugin that lets each worker import the tests in another order, before it collects them.

pytest rewrites the assertions of each file and keeps the result, which takes longer than the rest of the collection. In
a fresh clone, workers that import the same file at the same time all rewrite it. So each worker starts at another place
and finds the results of the others at the end.
"""

import contextlib
import importlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import all modules of tests, first those that other workers import last."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    root = session.config.rootpath
    files = sorted(chain.from_iterable((root / folder).rglob("test_*.py") for folder in folders_of(session.config)))
    for file in rotated(files, int(worker["workerid"].removeprefix("gw")), worker["workercount"]):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def folders_of(config: pytest.Config) -> list[Path]:
    """Return the folders among the arguments."""
    return [path for path in (config.rootpath / argument for argument in config.args) if path.is_dir()]


def rotated(files: Sequence[Path], worker: int, workers: int) -> list[Path]:
    """Return the files in the order of this worker: each starts at another part of them."""
    first = len(files) * worker // workers
    return [*files[first:], *files[:first]]
