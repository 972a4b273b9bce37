"""Runs: files of rows that are sorted by the hash of their key, so that some keys can be read without the others.

A trace, the memory of an operator, is a list of runs for each partition. A run is written once, first under a temporary
name, and never changed; a merge makes a new run. So a list of names is a version of the trace, and an epoch can begin
from any version. A file that no retained version names can be deleted. `files.py` says where they are.
"""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from falkirk.platform.durable import damaged
from falkirk.steps.differential.ordered import ranges
from falkirk.steps.differential.rows import HASH, Hashes, concat_rows, spans

#: The text of the error for an unreadable file; a task's error reaches the driver as text.
UNREADABLE_STATE = "a file of an iteration's state can't be read"


def store(path: Path, table: pa.Table) -> None:
    """Write rows as they are, with the folder of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    os.replace(partial, path)


def load_run(path: Path) -> pa.Table:
    """Return the rows of a file as a memory map, which is read only where it is used.

    Raises: HomeError: `STATE_DAMAGED`: it is missing, truncated or damaged.
    """
    try:
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise damaged(f"{UNREADABLE_STATE}: {error}.", path) from error


def rows_of_keys(runs: Iterable[pa.Table], hashes: Hashes, schema: pa.Schema) -> pa.Table:
    """Return the rows of a trace with these hashes (sorted, distinct); other keys may have the same hash."""
    return concat_rows((rows_with_hashes(run, hashes) for run in runs), schema)


def rows_with_hashes(run: pa.Table, hashes: Hashes) -> pa.Table:
    """Return the rows of a run with these hashes."""
    if not run.num_rows:
        return run
    there = run.column(HASH).chunk(0).to_numpy()  # a view of the file: a copy would read the whole column
    return ranges(run, *spans(there, hashes))
