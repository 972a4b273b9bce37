"""Spark checkpoints as Falkirk sees them: which batches can be restored, up to which input, and how to go back to one.

Spark's own `offsets/` and `commits/` logs are the truth; nothing of them is copied. Batch n is restorable iff
`commits/n` is there: offsets without a commit are cut anew by Real-time Mode on restart, so they decide nothing. A
commit names the state files that it rests on, so what is missing of them is found before Spark looks for it.
"""

import re
from pathlib import Path
from typing import Any

from falkirk.errors import SparkError
from falkirk.stored import parse_json

#: Behind the first line, which is the format's version, a commit is one JSON object.
_VERSION = re.compile(r"v\d+")
#: Of an operator or of a state file; anything else could be a pattern, or another place.
_NAME = re.compile(r"[\w-]+")


def committed_batches(checkpoint: Path) -> tuple[int, ...]:
    """Return the committed batches of a Spark checkpoint, oldest first."""
    commits = checkpoint / "commits"
    if not commits.is_dir():
        return ()
    return tuple(sorted(int(f.name) for f in commits.iterdir() if f.name.isdigit()))


def last_committed_batch(checkpoint: Path) -> int:
    """Return the newest committed batch of a Spark checkpoint, or -1 when there is none."""
    return max(committed_batches(checkpoint), default=-1)


def committed_at_s(checkpoint: Path, batch: int) -> float:
    """Return when a batch was committed, in seconds since the epoch."""
    return (checkpoint / "commits" / str(batch)).stat().st_mtime


def end_offsets(checkpoint: Path, batch: int, topic: str) -> dict[int, int]:
    """Return the input offsets at which the batch after `batch` begins, per partition.

    Raises: SparkError: `CHECKPOINT_DAMAGED` when a committed batch has no readable offsets.
    """
    file = checkpoint / "offsets" / str(batch)
    try:
        lines = file.read_text().splitlines()
        content = parse_json(lines[2])
        return {int(p): int(o) for p, o in content[topic].items()}
    except (OSError, IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
        raise SparkError(
            "CHECKPOINT_DAMAGED",
            f"batch {batch} is committed but its offsets can't be read.",
            where=file,
            hint="Restore the checkpoint from a backup, or begin with a new home.",
            batch=batch,
        ) from error


def damage(checkpoint: Path, batch: int, topic: str) -> str | None:
    """Return what is wrong with the files of a committed batch, or None when none of them is missing or torn.

    It is Spark that reads the state files, with their checksums; here only their presence is asked for.
    """
    try:
        end_offsets(checkpoint, batch, topic)
    except SparkError:
        return f"offsets/{batch} can't be read"
    try:
        version, text = (checkpoint / "commits" / str(batch)).read_text().split("\n", 1)
        content: dict[str, Any] = parse_json(text)
        stores = dict(content.get("stateUniqueIds") or {})
        named = (name for partitions in stores.values() for names in partitions for name in names)
        whole = bool(_VERSION.fullmatch(version)) and all(map(_NAME.fullmatch, (*stores, *named)))
    except (OSError, ValueError, TypeError, AttributeError):
        whole = False
    if not whole:
        return f"commits/{batch} can't be read"
    for operator, partitions in stores.items():
        for partition, names in enumerate(partitions):
            for name in names:
                files = list((checkpoint / "state" / operator / str(partition)).glob(f"**/{batch + 1}_{name}.*"))
                if not any(f.suffix in (".changelog", ".zip") and f.stat().st_size for f in files):
                    return f"the state of partition {partition} after batch {batch} is missing"
    return None


def rewind(checkpoint: Path, batch: int) -> None:
    """Make a committed batch, or -1, the newest: drop the log entries of later ones. Twice is as once.

    Commits go first: a crash in between leaves offsets without a commit, which decide nothing. State files of later
    batches stay; nothing names them any more.
    """
    for folder in ("commits", "offsets"):
        for file in (checkpoint / folder).glob("*"):
            if file.name.isdigit() and int(file.name) > batch:
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # a file without one is read all the same
                file.unlink(missing_ok=True)


def discard_below(checkpoint: Path, batch: int) -> None:
    """Drop the log entries of batches before `batch`. Twice is as once.

    Spark asks for the offsets of the batch before the one that it goes on from, so those stay. Commits go oldest
    first, so that what is left after a crash is without a gap.
    """
    for folder, first in (("commits", batch), ("offsets", batch - 1)):
        for number in sorted(int(f.name) for f in (checkpoint / folder).glob("*") if f.name.isdigit()):
            if number < first:
                (checkpoint / folder / f".{number}.crc").unlink(missing_ok=True)
                (checkpoint / folder / str(number)).unlink(missing_ok=True)
