"""The port of data: code that works with the data of a home imports neither `pathlib` nor `os` nor `shutil`.

With these modules, code would work on a local disk and fail in an object store. The exceptions are listed, with the
reasons.
"""

import ast
from pathlib import Path

from tests.unit.house.parsed import nodes
from tests.unit.house.test_layers import MODULES

#: The packages whose modules work with data of a home.
OF_DATA = ("falkirk.differential", "falkirk.operators", "falkirk.runtime")
REFUSED = {"glob", "os", "pathlib", "shutil", "tempfile"}
#: Modules for files that are no data of a home: folders of users, pipes, sockets, the terminal.
OTHER_FILES = {
    "falkirk.runtime.epochs.files", "falkirk.runtime.epochs.pipes", "falkirk.runtime.record",
    "falkirk.runtime.sinks.console", "falkirk.runtime.sinks.delta", "falkirk.runtime.sinks.folder",
    "falkirk.runtime.sinks.iceberg", "falkirk.runtime.sinks.lake",
}  # fmt: skip
#: Modules whose data must be on a local disk until they use the port: the plan refuses them in a shared home.
ONLY_LOCAL = {
    "falkirk.differential.flow", "falkirk.differential.in_memory", "falkirk.differential.jobs",
    "falkirk.differential.runs", "falkirk.differential.single_task", "falkirk.differential.state",
    "falkirk.differential.task", "falkirk.operators.call", "falkirk.operators.in_epoch", "falkirk.operators.iteration",
    "falkirk.operators.rehearsal", "falkirk.runtime.live.checkpoint", "falkirk.runtime.live.kept",
    "falkirk.runtime.live.query", "falkirk.runtime.live.state_files", "falkirk.runtime.live.triage",
    "falkirk.runtime.live.twin", "falkirk.runtime.live.warming",
}  # fmt: skip


def test_only_listed_modules_use_files_without_the_port() -> None:
    found = {name for name, path in MODULES.items() if name.startswith(OF_DATA) and REFUSED & _imported(path)}
    assert found == OTHER_FILES | ONLY_LOCAL


def _imported(path: Path) -> set[str]:
    names = set[str]()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names
