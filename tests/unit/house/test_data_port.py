"""The port of data: code that works with the data of a home imports neither `pathlib` nor `os` nor `shutil`.

With these modules, code would work on a local disk and fail in an object store. The exceptions are listed, with the
reasons.
"""

import ast
from pathlib import Path

from tests.unit.house.parsed import nodes
from tests.unit.house.test_layers import MODULES

#: The packages whose modules work with data of a home.
OF_DATA = ("falkirk.steps.differential", "falkirk.steps.batch", "falkirk.runtime.spark")
REFUSED = {"glob", "os", "pathlib", "shutil", "tempfile"}
#: Modules for files that are no data of a home: folders of users, pipes, sockets, the terminal.
OTHER_FILES = {
    "falkirk.runtime.spark.epochs.files", "falkirk.runtime.spark.epochs.pipes", "falkirk.runtime.spark.record",
    "falkirk.runtime.spark.sinks.console", "falkirk.runtime.spark.sinks.delta", "falkirk.runtime.spark.sinks.folder",
    "falkirk.runtime.spark.sinks.iceberg", "falkirk.runtime.spark.sinks.lake",
}  # fmt: skip
#: Modules for Spark's checkpoint of a live region in a folder of the driver's machine. With a home in an object store,
#: that folder is a working copy: `shared_checkpoints` alone copies it, through the port.
WORKING_COPY = {
    "falkirk.runtime.spark.live.checkpoint", "falkirk.runtime.spark.live.checkpoint_files",
    "falkirk.runtime.spark.live.kept", "falkirk.runtime.spark.live.query",
    "falkirk.runtime.spark.live.shared_checkpoints", "falkirk.runtime.spark.live.state_files",
    "falkirk.runtime.spark.live.triage", "falkirk.runtime.spark.live.twin", "falkirk.runtime.spark.live.warming",
    "falkirk.runtime.spark.live.written_checkpoints",
}  # fmt: skip
#: Modules for the files of iterations in the folder of their tasks. With a home in an object store, that folder is a
#: working copy, which `loop_files` copies through the port; on a cluster each executor has one, which `copies` copies.
LOOPS = {
    "falkirk.steps.differential.copies", "falkirk.steps.differential.files", "falkirk.steps.differential.runs",
    "falkirk.steps.differential.state", "falkirk.steps.batch.loop_files",
}  # fmt: skip


def test_only_listed_modules_use_files_without_the_port() -> None:
    found = {name for name, path in MODULES.items() if name.startswith(OF_DATA) and REFUSED & _imported(path)}
    assert found == OTHER_FILES | WORKING_COPY | LOOPS


def test_listed_modules_copy_between_a_working_copy_and_the_data() -> None:
    """Any other code that copies files there would need the record that makes them count. Commands only read."""
    found = {name for name, path in MODULES.items() if {"copy_from", "copy_to"} & _called(path)}
    implementing = {"falkirk.platform.local_data", "falkirk.platform.object_data"}
    assert found - implementing == {
        "falkirk.runtime.spark.live.shared_checkpoints", "falkirk.steps.batch.loop_files",
        "falkirk.steps.differential.copies", "falkirk.user_tools.commands.kept_state",
    }  # fmt: skip


def _called(path: Path) -> set[str]:
    return {
        node.func.attr for node in nodes(path) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def _imported(path: Path) -> set[str]:
    names = set[str]()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names
