"""Checkpoints: tells which batches of a Spark checkpoint can be restored, up to which input, and rewinds to one.

Spark's own `offsets/` and `commits/` logs are the truth; Falkirk copies nothing from them. Batch n can be restored iff
`commits/n` exists. Offsets without a commit have no meaning, because Real-time Mode chooses them again after a restart.
A commit names its state files, so Falkirk finds a missing file before Spark needs it.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from falkirk.errors import SparkError
from falkirk.errors.conditions.spark import CHECKPOINT_DAMAGED
from falkirk.platform.stored import parse_json
from falkirk.theory.ids import BatchId, LogId, Offsets, topic_name
from falkirk.theory.offsets import offsets_from_json

#: The first line of a commit is the version of its format. The rest is one JSON object.
_VERSION = re.compile(r"v\d+")
#: The name of an operator or a state file. Any other text could be a glob pattern or a path to another folder.
_NAME = re.compile(r"[\w-]+")
#: The suffixes of files with a state: the changes since another version, and a snapshot.
_STATES = (".changelog", ".zip")


def committed_batches(checkpoint: Path) -> tuple[BatchId, ...]:
    """Return the committed batches of a Spark checkpoint, oldest first."""
    commits = checkpoint / "commits"
    if not commits.is_dir():
        return ()
    return tuple(sorted(BatchId(int(f.name)) for f in commits.iterdir() if f.name.isdigit()))


def last_committed_batch(checkpoint: Path) -> BatchId:
    """Return the newest committed batch of a Spark checkpoint, or -1 when there is none."""
    return max(committed_batches(checkpoint), default=BatchId(-1))


def committed_at_s(checkpoint: Path, batch: BatchId) -> float:
    """Return the time at which a batch was committed, in seconds since the epoch."""
    return (checkpoint / "commits" / str(batch)).stat().st_mtime


def end_offsets(checkpoint: Path, batch: BatchId, topic: LogId) -> Offsets:
    """Return the offsets of a topic at which the batch after `batch` begins, per partition.

    Raises: SparkError: `CHECKPOINT_DAMAGED` if a committed batch has no readable offsets.
    """
    file = checkpoint / "offsets" / str(batch)
    try:
        return offsets_in(file.read_text(), topic)
    except (OSError, IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
        raise CHECKPOINT_DAMAGED.error(where=file, batch=batch) from error


def offsets_in(text: str, topic: LogId) -> Offsets:
    """Return the offsets of a topic in a file of offsets: a line for each source, after the version and the metadata.

    Spark writes the topic's name without its cluster. No query reads topics of one name from several clusters
    (plan/engines.py).

    Raises: IndexError, KeyError, AttributeError, TypeError, ValueError: it has other content than Spark writes.
    """
    content = {name: offsets for line in text.splitlines()[2:] for name, offsets in parse_json(line).items()}
    return offsets_from_json(content[topic_name(topic)])


def damage(
    checkpoint: Path, batch: BatchId, *topics: LogId, states: Mapping[str, int] | None = None
) -> str | None:  # fmt: skip
    """Return a description of the damage to the files of a committed batch, or None if no file is missing or torn.

    This checks only that the state files exist. Spark reads them and verifies their checksums.

    Args: states: the sizes in bytes of the state files by their paths in the checkpoint; None: they are in its folder.
    """
    try:
        for topic in topics:
            end_offsets(checkpoint, batch, topic)
    except SparkError:
        return f"offsets/{batch} can't be read"
    if batch > 0 and not (checkpoint / "offsets" / str(batch - 1)).exists():
        return f"offsets/{batch - 1} is missing"  # Spark reads them too when it resumes
    try:
        stores = stores_of(checkpoint, batch)
    except ValueError:
        return f"commits/{batch} can't be read"
    sizes = None if states is None else _by_store(states)
    for operator, partition, name in stores:
        root, version = f"state/{operator}/{partition}", f"{batch + 1}_{name}"
        if not (_has_state(checkpoint / root, version) if sizes is None else sizes.get((root, version))):
            return f"the state of partition {partition} after batch {batch} is missing"
    return None


def _has_state(folder: Path, version: str) -> bool:
    return any(f.suffix in _STATES and _size(f) for f in folder.glob(f"**/{version}.*"))


def _by_store(states: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return the sizes of files with a state, by the folder of their partition and the name without its suffix."""
    return {
        ("/".join(path.split("/")[:3]), path.rpartition("/")[2].removesuffix(suffix)): size
        for path, size in states.items()
        for suffix in _STATES
        if size and path.endswith(suffix)
    }


def stores_of(checkpoint: Path, batch: BatchId) -> list[tuple[str, int, str]]:
    """Return the operator, the partition and Spark's unique id of each state that a committed batch names.

    Raises: ValueError: the commit is missing or can't be read.
    """
    try:
        version, text = (checkpoint / "commits" / str(batch)).read_text().split("\n", 1)
        content: dict[str, Any] = parse_json(text)
        found = [
            (operator, partition, name)
            for operator, partitions in dict(content.get("stateUniqueIds") or {}).items()
            for partition, names in enumerate(partitions)
            for name in names
        ]
        if _VERSION.fullmatch(version) and all(
            _NAME.fullmatch(n) for operator, _, name in found for n in (operator, name)
        ):
            return found
    except (OSError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    raise ValueError(f"commits/{batch} has other content than Spark writes")


def _size(file: Path) -> int:
    """Return the size of a file; 0 if Spark has just deleted it."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def rewind(checkpoint: Path, batch: BatchId) -> None:
    """Make a committed batch, or -1, the newest: delete the log entries of later batches. Idempotent.

    Commits are deleted first: a crash in between leaves offsets without a commit, which have no meaning. The state
    files of later batches stay, but no commit names them. Temporary files are deleted as well: a write that a kill or a
    full disk has cut off leaves one, and Spark refuses to begin with a log that is not empty. The query must be fenced.
    """
    for folder in ("commits", "offsets"):
        files = list((checkpoint / folder).glob("*"))
        kept = {f.name for f in files if f.name.isdigit() and int(f.name) <= batch}
        gone = [f for f in files if f.name not in kept and f.name not in {f".{name}.crc" for name in kept}]
        # A checksum before its file: Spark reads a file without checksum too.
        for file in sorted(gone, key=lambda file: file.name.isdigit()):
            file.unlink(missing_ok=True)


def keep_only(checkpoint: Path, batches: Collection[BatchId]) -> None:
    """Delete the log entries of the batches before the last of these that are not among them. Idempotent.

    When Spark resumes from a batch, it also reads the offsets of the batch before, so these stay.
    """
    kept, last = set(batches), max(batches)
    for folder, needed in (("commits", kept), ("offsets", kept | {batch - 1 for batch in kept})):
        for number in sorted(int(f.name) for f in (checkpoint / folder).glob("*") if f.name.isdigit()):
            if number < last and number not in needed:
                (checkpoint / folder / f".{number}.crc").unlink(missing_ok=True)
                (checkpoint / folder / str(number)).unlink(missing_ok=True)
