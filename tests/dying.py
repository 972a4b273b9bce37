"""Kills a process with -9 in the middle of a file: a Python worker of Spark that writes a file of its task, or a
process that writes the note of a state.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.steps.differential import runs
from falkirk.steps.differential.jobs import Jobs
from falkirk.steps.differential.reports import JobReports, TaskId
from falkirk.steps.differential.task import MERGE

Work = Callable[[Iterator[Any]], Iterator[Any]]


def dying(work: Work, mark: Path, what: str, *, torn: bool = False, with_it: int | None = None) -> Work:
    """Return a task's work whose worker is killed once, in the middle of a file of a given kind.

    The worker is killed only while the mark exists, and removes it before it dies. This function contains all its code,
    since workers get it by value and can't import the tests.

    Args: what: the kind: `input0`, `output`, …. torn: the half-written file gets its final name, as if no temporary
        name was used. with_it: the process that is killed first.
    """
    path = str(mark)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        def replace(partial: str, target: str) -> None:
            if f"_{what}_" in os.path.basename(target) and os.path.exists(path):
                try:
                    os.unlink(path)
                except FileNotFoundError:  # another worker died first
                    os.replace(partial, target)
                    return
                os.truncate(partial, os.path.getsize(partial) // 2)
                if torn:
                    os.replace(partial, target)
                if with_it is not None:
                    os.kill(with_it, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            os.replace(partial, target)

        runs.os = SimpleNamespace(replace=replace)  # type: ignore[attr-defined]
        try:
            yield from work(batches)
        finally:
            runs.os = os  # type: ignore[attr-defined]

    return call


def listing(state: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the driver add all files that it finds in the folders of an epoch's jobs, reported or not."""
    reported, seen = Jobs._reported, set[Path]()

    def listed(jobs: Jobs, reports: JobReports, tasks: Iterable[TaskId]) -> list[str]:
        wanted = list(tasks)
        if wanted[0][0] == MERGE:
            return reported(jobs, reports, wanted)
        new = {path for path in (state / jobs._name).rglob("[!.]*.arrow") if "merged-" not in str(path)} - seen
        seen.update(new)
        return [str(path.relative_to(state)) for path in sorted(new)]

    patch.setattr(Jobs, "_reported", listed)


def opening_notes(strike: Callable[[], None]) -> Callable[..., Any]:
    """Return an `open` for `falkirk.platform.durable` that calls `strike` in the middle of a state's note.

    At that moment half of the note is in its temporary file.
    """

    def opened(file: Path, *arguments: Any, **options: Any) -> Any:
        handle = open(file, *arguments, **options)  # noqa: SIM115
        if not file.parent.name.endswith("-state"):
            return handle
        write = handle.write

        def in_halves(text: str) -> int:
            written = int(write(text[: len(text) // 2]))
            handle.flush()
            strike()
            return written + int(write(text[written:]))

        handle.write = in_halves
        return handle

    return opened
