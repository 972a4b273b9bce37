"""Spark checkpoints as Falkirk sees them: which batches are committed, and up to which input.

Spark's own `offsets/` and `commits/` logs are the truth; nothing of them is copied. Batch n is restorable iff
`commits/n` is there: offsets without a commit are cut anew by Real-time Mode on restart, so they decide nothing.
"""

import json
from pathlib import Path

from falkirk.errors import SparkError


def last_committed_batch(checkpoint: Path) -> int:
    """Return the newest committed batch of a Spark checkpoint, or -1 when there is none."""
    commits = checkpoint / "commits"
    if not commits.is_dir():
        return -1
    return max((int(f.name) for f in commits.iterdir() if f.name.isdigit()), default=-1)


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
        content = json.loads(lines[2])
        return {int(p): int(o) for p, o in content[topic].items()}
    except (OSError, IndexError, KeyError, ValueError) as error:
        raise SparkError(
            "CHECKPOINT_DAMAGED",
            f"batch {batch} is committed but its offsets can't be read.",
            where=file,
            hint="Restore the checkpoint from a backup, or begin with a new home.",
            batch=batch,
        ) from error
