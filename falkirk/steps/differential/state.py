"""State: the memory of a graph between epochs, as lists of files."""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.steps.differential.rows import LoopTime


@dataclass(frozen=True, kw_only=True)
class LoopState:
    """The memory of a graph at the end of an epoch.

    Args: traces: files by holder and kind. left: the changes that the last round of a `fixpoint` left for the next
        epoch, as files by holder, kind and time. cut_short: by the same key, the residue of the changes that the last
        rounds of an `iterate` have left out so far, if it is not 0; the result of such a loop is no fixpoint. Paths are
        relative to the flow's folder.
    """

    traces: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    left: Mapping[tuple[str, str, LoopTime], tuple[str, ...]] = field(default_factory=dict)
    cut_short: Mapping[tuple[str, str, LoopTime], int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the state as JSON."""
        traces = [[*key, list(paths)] for key, paths in self.traces.items()]
        left = [[name, what, list(time), list(paths)] for (name, what, time), paths in self.left.items()]
        residues = [[name, what, list(time), residue] for (name, what, time), residue in self.cut_short.items()]
        return json.dumps({"traces": traces, "left": left, "residues": residues})

    @classmethod
    def parse(cls, text: str) -> "LoopState":
        """Return the state that a text describes."""
        content = json.loads(text)
        traces = {(name, what): tuple(paths) for name, what, paths in content["traces"]}
        left = {(name, what, tuple(time)): tuple(paths) for name, what, time, paths in content["left"]}
        residues = {(name, what, tuple(time)): residue for name, what, time, residue in content.get("residues", ())}
        return cls(traces=traces, left=left, cut_short=residues)

    def files(self) -> set[str]:
        """Return all files of the state."""
        return {path for group in (*self.traces.values(), *self.left.values()) for path in group}


def sweep(folder: Path, keep: set[str]) -> None:
    """Delete all other files in a flow's folder, and the folders that are then empty. Args: keep: paths."""
    delete_paths(folder, paths_in(folder) - keep)


def paths_in(folder: Path) -> set[str]:
    """Return the paths in a folder of all files and folders in it."""
    return {
        os.path.relpath(Path(root) / name, folder)
        for root, folders, files in os.walk(folder)
        for name in (*folders, *files)
    }


def delete_paths(folder: Path, paths: Iterable[str]) -> None:
    """Delete these files, and those of these folders that are then empty. Raises: OSError: of a file.

    Another thread may write other files into them.
    """
    for path in sorted(map(folder.joinpath, paths), reverse=True):  # the content of a folder comes before it
        if path.is_dir():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
