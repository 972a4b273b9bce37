"""Wrong calls that mypy must refuse: each mixes up two ids.

Nothing runs this module. `mypy` checks it (pyproject.toml), and fails if an error that is ignored here no longer
occurs (`warn_unused_ignores`).
"""

from pathlib import Path

from falkirk.recovery.decision_store import Store
from falkirk.recovery.protocol.ports import Checkpoint, LogsPort, RegionPort
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.live import checkpoint
from falkirk.theory.frontier import EMPTY
from falkirk.theory.ids import BatchId, CheckpointNumber, EpochNumber, Incarnation, LogId, Offset, Offsets, Positions


def numbers(
    store: Store, epochs: EpochLog, region: RegionPort, folder: Path,
    *, offset: Offset, epoch: EpochNumber, batch: BatchId, incarnation: Incarnation, point: CheckpointNumber,
) -> None:  # fmt: skip
    """Mix up numbers."""
    epochs.complete(offset, epoch)  # type: ignore[arg-type]
    epochs.complete(epoch, epoch + 1)  # type: ignore[arg-type]
    store.end_incarnation("totals", batch, ended="", unsafe=False)  # type: ignore[arg-type]
    store.distrust("totals", incarnation, "torn")  # type: ignore[arg-type]
    store.forget_tails_after("totals", epoch)  # type: ignore[arg-type]
    checkpoint.rewind(folder, point)  # type: ignore[arg-type]
    region.start(batch)  # type: ignore[arg-type]
    region.cuts(offset)  # type: ignore[arg-type]
    Checkpoint(number=epoch, read=EMPTY, sent=EMPTY)  # type: ignore[arg-type]


def logs(store: Store, port: LogsPort, *, region: str, log: LogId, offset: Offset, epoch: EpochNumber) -> None:
    """Mix up the names of logs and regions, and the kinds of positions in a log."""
    port.ends(region)  # type: ignore[arg-type]
    store.voided_ranges(region)  # type: ignore[arg-type]
    store.record_release("sink", log, 0, epoch)  # type: ignore[arg-type]
    ends: Offsets = {0: epoch}  # type: ignore[dict-item]
    several: Positions = {region: ends}  # type: ignore[dict-item]
    assert several
