"""Runs: files of rows that are sorted by the hash of their key, of which some keys can be read and the rest be left.

A trace, what an operator must remember, is a list of runs for each partition. A run is written once, under another
name first, and never changed; merging several makes a new one. So a list of names is a version of the trace: one may go
on from any of them, and what no version that is kept names can be deleted.
"""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from falkirk.coordinator.durable import damaged
from falkirk.differential.ordered import Order, in_order, ranges
from falkirk.differential.rows import HASH, Hashes, spans, together

#: What is said of a file that can't be read; a task's error reaches the driver as text.
DAMAGED = "a file of an iteration's state can't be read"


def write(path: Path, table: pa.Table, order: Order | None = None) -> None:
    """Write a run. Two tasks that write the same one write the same."""
    store(path, in_order(table, order))


def store(path: Path, table: pa.Table) -> None:
    """Write rows as they are."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    os.replace(partial, path)


def load(path: Path) -> pa.Table:
    """Return what a file holds, without reading it before it is needed.

    Raises: HomeError: `STATE_DAMAGED`: it is missing, cut off, or not what was written.
    """
    try:
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise damaged(f"{DAMAGED}: {error}.", path) from error


def keys_of(paths: Sequence[Path], hashes: Hashes, schema: pa.Schema) -> pa.Table:
    """Return the rows of a trace with these hashes (in order, each once); other keys may have the same hash."""
    return together((rows_of(load(path), hashes) for path in paths), schema)


def rows_of(run: pa.Table, hashes: Hashes) -> pa.Table:
    """Return the rows of a run with these hashes."""
    if not run.num_rows:
        return run
    there = run.column(HASH).chunk(0).to_numpy()  # as it is in the file: copying it would read all of it
    return ranges(run, *spans(there, hashes))
