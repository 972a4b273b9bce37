"""The command list: the homes of applications below a folder, and which of these applications run."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil
from rich.table import Table

from falkirk.errors import HomeError
from falkirk.plan.shape import read_shape
from falkirk.platform import locks
from falkirk.platform.stored import parse_json
from falkirk.platform.times import when
from falkirk.runtime.supervision.coordinator import read_status
from falkirk.user_tools.commands.options import json_option
from falkirk.user_tools.commands.printing import output

#: Folders in which no home is, and which may be large.
_SKIPPED = frozenset({".git", ".venv", "__pycache__", "node_modules"})
#: So many regions are named in a line.
_NAMED_MAX = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHome:
    """A home.

    Args: runs: a process of this machine holds its lock, not only for a visit. since_s: the start of that process, if
        known.
    """

    path: Path
    application: str
    runs: bool
    since_s: float | None = None
    #: The regions and batches, each with its state if the application runs.
    units: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "application": self.application, "home": str(self.path), "runs": self.runs, "since_s": self.since_s,
            "units": self.units,
        }  # fmt: skip


@click.command("list")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@json_option
def homes(folder: Path, as_json_: bool) -> None:
    """List the applications with a home in FOLDER or below.

    The list shows which of them run on this machine. `falkirk status` shows more about one.
    """
    found = list(homes_below(folder))
    if as_json_:
        click.echo(json.dumps([home.as_json() for home in found], indent=1))
    elif found:
        output().print(_table(found))
    else:
        click.echo(f"No application has a home below {folder}.", err=True)


def homes_below(folder: Path) -> Iterator[FoundHome]:
    """Yield the homes in a folder, by path. It follows no symbolic links, and looks for none inside a home."""
    for place, folders, files in os.walk(folder):
        is_home = {"falkirk.json", locks.OWNER} <= set(files)
        folders[:] = () if is_home else sorted(set(folders) - _SKIPPED)
        if is_home:
            yield _home(Path(place))


def _home(path: Path) -> FoundHome:
    try:
        application = str(parse_json((path / "falkirk.json").read_text())["application"])
    except (OSError, ValueError, KeyError, TypeError):
        return FoundHome(path=path, application="(damaged)", runs=False)
    runs = locks.is_run(path)
    return FoundHome(
        path=path, application=application, runs=runs, since_s=_since_s(path) if runs else None,
        units=_units(path, runs=runs),
    )  # fmt: skip


def _since_s(path: Path) -> float | None:
    """Return when the process that holds a home's lock began; None: it is not known here."""
    try:
        return psutil.Process(int((path / locks.OWNER).read_text())).create_time()
    except (OSError, ValueError, psutil.Error):
        return None


def _units(path: Path, *, runs: bool) -> dict[str, str]:
    status = read_status(path / "status.json") if runs else None
    if status is not None:
        return {str(region.get("name")): region["state"] for region in status["regions"]}
    try:
        shape = read_shape(path)
    except (HomeError, OSError):
        return {}
    return {} if shape is None else dict.fromkeys(shape.layout.stages, "")


def _table(found: list[FoundHome]) -> Table:
    table = Table()
    for name in ("application", "home", "runs", "regions and batches"):
        table.add_column(name, overflow="fold")
    for home in found:
        since = "" if home.since_s is None else f"since {when(home.since_s)}"
        named = [f"{name} {state}".strip() for name, state in list(home.units.items())[:_NAMED_MAX]]
        more = [f"{len(home.units) - _NAMED_MAX} more"] if len(home.units) > _NAMED_MAX else []
        table.add_row(
            home.application, str(home.path), (since or "yes") if home.runs else "no", ", ".join([*named, *more])
        )  # fmt: skip
    return table
