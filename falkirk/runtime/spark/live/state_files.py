"""State files: looks for the damaged file because of which a query could not load its state.

When a state task fails while it loads, Spark often reports another task, which lost its connection to it, and ends the
state task before its own error is known. So after a failure without a new checkpoint, Falkirk reads the files itself.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.runtime.spark.live.checkpoint import last_committed_batch, stores_of
from falkirk.runtime.spark.live.checkpoint_files import CheckpointFiles
from falkirk.runtime.spark.live.triage import Damage
from falkirk.theory.ids import BatchId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("falkirk")


def damage_of_state(
    session: "SparkSession", checkpoint: Path, batch: BatchId, files: CheckpointFiles
) -> Damage | None:  # fmt: skip
    """Return the proof that the states with which a query began can't be loaded; None: no file is damaged.

    All files are read, also those of earlier batches that these states need: as many bytes as Spark reads to load them.
    After a new commit none is read, because Spark has loaded the states.

    Args: checkpoint: the folder with the logs of the query. batch: the one that the query was restored from. files: of
        the region.
    """
    if batch < 0 or last_committed_batch(checkpoint) != batch:
        return None
    try:
        stores = stores_of(checkpoint, batch)
    except ValueError:
        return None  # the commit itself is damaged, and the next choice of a checkpoint finds that
    java: Any = session._jvm.org.falkirk.StateFiles  # type: ignore[union-attr]
    hadoop, names = session._jsc.hadoopConfiguration(), files.state_names(batch)
    for operator, partition, name in stores:
        root, version = f"state/{operator}/{partition}", f"{batch + 1}_{name}."
        within = [path.rpartition("/") for path in names if path.startswith(f"{root}/")]
        for folder in {folder for folder, _, file in within if file.startswith(version)}:
            try:
                found = str(java.damage(hadoop, f"{files.location}/{folder}", batch + 1, name))
            except SPARK_ERRORS as error:  # it could not be read, which proves nothing
                log.warning("%s: %s", folder, first_line(error))
                continue
            if found:
                first, _, reason = found.partition(" ")
                return Damage(first=BatchId(int(first) - 1), reason=f"{root}: {reason}")
    return None
