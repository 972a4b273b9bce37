"""State: what a graph remembers between epochs, as a list of files."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.differential.rows import Time


@dataclass(frozen=True, kw_only=True)
class State:
    """What a graph remembers at the end of an epoch.

    Args: traces: files by holder and what they are. left: of loops that go on where they were, what their last round
        has left for the next; by holder, what, and time. cut_short: of loops that begin anew in each epoch, the residue
        of what their last rounds have left so far, by the same, where there is any: what such a loop has come to is no
        fixpoint. Paths are relative to the flow's folder.
    """

    traces: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    left: Mapping[tuple[str, str, Time], tuple[str, ...]] = field(default_factory=dict)
    cut_short: Mapping[tuple[str, str, Time], int] = field(default_factory=dict)

    def text(self) -> str:
        """Return it as JSON."""
        traces = [[*key, list(paths)] for key, paths in self.traces.items()]
        left = [[name, what, list(time), list(paths)] for (name, what, time), paths in self.left.items()]
        residues = [[name, what, list(time), residue] for (name, what, time), residue in self.cut_short.items()]
        return json.dumps({"traces": traces, "left": left, "residues": residues})

    @classmethod
    def parse(cls, text: str) -> "State":
        """Return what was written as text."""
        content = json.loads(text)
        traces = {(name, what): tuple(paths) for name, what, paths in content["traces"]}
        left = {(name, what, tuple(time)): tuple(paths) for name, what, time, paths in content["left"]}
        residues = {(name, what, tuple(time)): residue for name, what, time, residue in content.get("residues", ())}
        return cls(traces=traces, left=left, cut_short=residues)

    def files(self) -> set[str]:
        """Return all files that it needs."""
        return {path for group in (*self.traces.values(), *self.left.values()) for path in group}


def sweep(folder: Path, keep: set[str]) -> None:
    """Delete all files in a flow's folder but these, and folders that are empty then."""
    for root, folders, files in os.walk(folder, topdown=False):
        for file in files:
            path = Path(root) / file
            if str(path.relative_to(folder)) not in keep:
                path.unlink(missing_ok=True)
        for name in folders:
            if not any((Path(root) / name).iterdir()):
                shutil.rmtree(Path(root) / name, ignore_errors=True)
