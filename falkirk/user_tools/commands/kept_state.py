"""Kept states: reads the state that a region or a batch has saved last: from a checkpoint, or from Parquet files."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from falkirk.errors import HomeError, SparkError
from falkirk.errors.conditions.commands import STATE_MISSING, STATE_UNREADABLE, STATE_UNREADABLE_DELETED
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.plan.region import BatchLogs, RegionLogs
from falkirk.platform.data import DataPath
from falkirk.platform.durable import damaged
from falkirk.platform.stored import parse_json
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.live import checkpoint
from falkirk.runtime.spark.live.at_rest import checkpoint_files
from falkirk.runtime.spark.live.shared_checkpoints import SharedCheckpoints
from falkirk.steps.dataframes.names import PREFIX
from falkirk.theory.ids import BatchId
from falkirk.user_tools.commands.records import key_texts

#: Spark's name of the operator whose state is that of `groupBy().agg()` in a live region.
_AGGREGATE = "StatefulStreamlineAggregate"
#: Spark's conditions for a checkpoint that does not exist any more, and how often another one is tried.
_DELETED, READ_TRIES = re.compile(r"STDS_\w+_UNAVAILABLE"), 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """A part of the state of a live region. Args: as of `KeptState`."""

    what: str
    columns: tuple[str, ...]
    keys: int
    count: int
    rows: tuple[dict[str, Any], ...]


#: The columns of a state, how many of them are keys, the number of rows, and the first rows.
StateRows = tuple[tuple[str, ...], int, int, tuple[dict[str, Any], ...]]
#: Reads the state of an aggregation: the folder of a checkpoint, its number, the texts of the first columns of the key,
#: and how many rows to return at most.
StateReader = Callable[[Path, BatchId, Sequence[str], int], StateRows]
#: Reads the tables of other keyed steps: the same arguments.
TablesReader = Callable[[Path, BatchId, Sequence[str], int], Sequence[StateTable]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """A saved state, or a part of it.

    Args:
        unit. what: the name of the part, if a batch has several. checkpoint: its number; for a batch, that of
            the epoch. made_at_s: its time.
        columns: of `rows`. keys: so many of them are the key. count: the number of all rows that fit, shown or not.
        covers: by topic and partition, the end of the input that the state has seen; only for live regions.
        note: the parts of the state that can't be shown.
    """

    unit: str
    checkpoint: int
    made_at_s: float | None
    what: str = ""
    columns: tuple[str, ...] = ()
    keys: int = 0
    rows: tuple[dict[str, Any], ...] = ()
    count: int = 0
    covers: dict[str, dict[int, int]] = field(default_factory=dict)
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def newest_checkpoint(region: RegionLogs, home: Home) -> BatchId:
    """Return the newest undamaged checkpoint of a region with a state.

    A running region may delete the newest one meanwhile. Then the next one is newer.

    Raises: HomeError: `STATE_MISSING`: there is none. DefinitionError: `STATE_UNREADABLE`: as `live_state`.
    """
    if home.is_shared:
        return _newest_shared(region, home)
    folder = home.checkpoint(region.name)
    if not (folder / "state").is_dir():
        committed = checkpoint.committed_batches(folder)
        reason = "it has no step with a state" if committed else "it has made no checkpoint yet"
        raise STATE_MISSING.error(where=folder, unit=region.name, reason=reason)
    distrusted = home.store.distrusted(region.name)
    for _ in range(READ_TRIES):
        for number in reversed(checkpoint.committed_batches(folder)):
            if number in distrusted:
                continue
            if checkpoint.damage(folder, number, *region.sources) is None:
                return number
            if number not in checkpoint.committed_batches(folder):
                break
        else:
            raise STATE_MISSING.error(where=folder, unit=region.name, reason="it has made no checkpoint yet")
    raise STATE_UNREADABLE_DELETED.error(where=folder, unit=region.name, tries=READ_TRIES)


def _newest_shared(region: RegionLogs, home: Home) -> BatchId:
    """See `newest_checkpoint`: of a region whose checkpoints are in an object store."""
    distrusted, where = home.store.distrusted(region.name), home.data_of(region.name)
    numbers = [n for n in checkpoint_files(home, region).numbers() if n not in distrusted]
    if not numbers:
        raise STATE_MISSING.error(where=where, unit=region.name, reason="it has made no checkpoint yet")
    if not any(file.is_of(numbers[-1]) for file in home.store.state_files(region.name)):
        raise STATE_MISSING.error(where=where, unit=region.name, reason="it has no step with a state")
    return numbers[-1]


@contextmanager
def _folder_of(region: RegionLogs, home: Home, number: BatchId) -> Iterator[Path]:
    """Yield a folder with a checkpoint: Spark's, or a copy of the one in an object store.

    Raises: FileNotFoundError: it was deleted meanwhile, or is damaged.
    """
    files = checkpoint_files(home, region)
    if not isinstance(files, SharedCheckpoints):
        yield home.checkpoint(region.name)
        return
    with TemporaryDirectory(prefix="falkirk-state-") as name:
        folder = Path(name) / "checkpoint"
        if (wrong := files.copy_to(folder, number)) is not None:
            raise FileNotFoundError(wrong)
        yield folder


def live_state(
    region: RegionLogs,
    home: Home,
    read: StateReader,
    key: Sequence[str],
    limit: int,
    tables: TablesReader | None = None,
) -> tuple[KeptState, ...]:
    """Return the parts of the state of a live region at its newest checkpoint.

    A running region without input deletes each checkpoint that equals the next one. Then Spark does not find it any
    more, and reads the next one.

    Args: read: reads that of an aggregation; see spark_state.py. tables: reads those of other steps; see
        state_tables.py. key: the texts of the first columns of the key.
    Raises: HomeError: `STATE_MISSING`, `STATE_DAMAGED`. DefinitionError: `STATE_UNREADABLE`: it is that of another
        step, or its checkpoints are deleted faster than Spark reads one.
    """
    for _ in range(READ_TRIES):
        number = newest_checkpoint(region, home)
        try:
            with _folder_of(region, home, number) as folder:
                return tuple(_live_state(region, folder, number, read, key, limit, tables))
        except (FileNotFoundError, SparkError):
            continue
        except SPARK_ERRORS as error:
            if _DELETED.search(str(error)):
                continue
            where = home.data_of(region.name)
            raise damaged(f"Spark can't read the state of {region.name!r}: {first_line(error)}.", where) from error
    raise STATE_UNREADABLE_DELETED.error(where=home.data_of(region.name), unit=region.name, tries=READ_TRIES)


def _live_state(
    region: RegionLogs, folder: Path, number: BatchId, read: StateReader, key: Sequence[str], limit: int,
    tables: TablesReader | None,
) -> Iterator[KeptState]:  # fmt: skip
    operator = _operator(folder)
    if operator == _AGGREGATE:
        columns, keys, count, rows = read(folder, number, key, limit)
        found = [StateTable(what="", columns=columns, keys=keys, count=count, rows=rows)]
    elif tables is not None:
        found = list(tables(folder, number, key, limit))
    else:
        raise STATE_UNREADABLE.error(unit=region.name, step=" and ".join(region.chain) or region.keyed_step or operator)
    made_at_s = checkpoint.committed_at_s(folder, number)
    covers: dict[str, dict[int, int]] = {
        str(t): dict[int, int](checkpoint.end_offsets(folder, number, t)) for t in region.sources
    }
    for each in found:
        yield KeptState(
            unit=region.name, checkpoint=number, made_at_s=made_at_s, what=each.what, columns=each.columns,
            keys=each.keys, rows=each.rows, count=each.count, covers=covers,
        )  # fmt: skip


def _operator(folder: Path) -> str:
    """Return Spark's name of the first operator with a state; an operator of other tables has no such file."""
    try:
        _, content = (folder / "state" / "0" / "_metadata" / "metadata").read_text().split("\n", 1)
        return str(parse_json(content)["operatorInfo"]["operatorName"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another kind of step"


def batch_states(batch: BatchLogs, home: Home, key: Sequence[str], limit: int) -> tuple[KeptState, ...]:
    """Return the parts of the newest saved state of a batch. Needs no Spark.

    A running batch may delete a state while it is read here. Then the newest one is another one.

    Args: key: the texts of the first columns.
    Raises: HomeError: `STATE_MISSING`: it has saved none. `STATE_DAMAGED`. DefinitionError: `STATE_UNREADABLE`: as
        `live_state`.
    """
    tried: set[str | None] = set()
    for _ in range(READ_TRIES):
        epochs = EpochLog(batch.log, batch.name, home.data_of(batch.name), home.store)  # it keeps what it has read
        saved = [e for e in epochs.epochs() if e.is_complete and e.saved and e.state is not None]
        if not saved:
            reason = "it has no state, or has saved none yet"
            raise STATE_MISSING.error(where=epochs.folder, unit=batch.name, reason=reason)
        newest = saved[-1]
        try:
            return tuple(_parts(batch, epochs, newest, key, limit))
        except HomeError:
            if epochs.path(str(newest.state)).exists() or newest.state in tried:
                raise
            tried.add(newest.state)
    raise STATE_UNREADABLE_DELETED.error(where=epochs.folder, unit=batch.name, tries=READ_TRIES)


def _parts(batch: BatchLogs, epochs: EpochLog, newest: Epoch, key: Sequence[str], limit: int) -> Iterator[KeptState]:
    """Yield the parts of the state after an epoch. Raises: HomeError: `STATE_DAMAGED`."""
    folder, about = (
        epochs.state(newest),
        {"unit": batch.name, "checkpoint": newest.number, "made_at_s": newest.made_at_s},
    )
    is_result = newest.state == newest.folder
    try:
        parts = [p for p in folder.children() if not p.name.endswith(".json")]
        for part in [folder] if is_result else parts:
            columns, count, rows = _rows(part, key, limit)
            what = "" if part == folder or part.name == "own" else part.name
            yield KeptState(**about, what=what, columns=columns, rows=rows, count=count)  # type: ignore[arg-type]
    except (OSError, pa.ArrowException) as error:
        raise damaged(f"the state of {batch.name!r} can't be read: {error}.", folder) from error
    for note in () if is_result else [p for p in folder.children() if p.name.endswith(".json")]:
        text = "the state of loops is in files of changes, which this command can't show; read its results instead"
        yield KeptState(**about, what=note.name.removesuffix(".json"), note=text)  # type: ignore[arg-type]


def _rows(folder: DataPath, key: Sequence[str], limit: int) -> tuple[tuple[str, ...], int, tuple[dict[str, Any], ...]]:
    """Return the columns of a folder of Parquet files, the number of its rows with the key, and the first of them."""
    system, files = folder.arrow()
    if not files:  # Spark writes at least one
        raise FileNotFoundError(str(folder))
    data = ds.dataset(files, format="parquet", filesystem=system)
    columns = [name for name in data.schema.names if not name.startswith(PREFIX)]
    if not key:
        return tuple(columns), data.count_rows(), tuple(data.head(limit, columns=columns).to_pylist())
    of_key = columns[: len(key)]
    found = (
        row
        for part in data.to_batches(columns=columns)
        for row in part.to_pylist()
        if key_texts(row, of_key) == key_texts(dict(zip(of_key, key, strict=False)), of_key)
    )
    first = tuple(islice(found, limit))
    return tuple(columns), len(first) + sum(1 for _ in found), first
