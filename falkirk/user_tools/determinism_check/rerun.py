"""Reruns: one processor on the same rows, in different partitions and order, as after a failure."""

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from falkirk.declare.nodes import NEWEST_ROW, Step
from falkirk.declare.windows import split_windows
from falkirk.plan.batch import Batch, BatchInput, by_parameter, stamp_column
from falkirk.plan.batch_planning import returned
from falkirk.platform.local_data import LocalData
from falkirk.steps.batch.call import EpochContext
from falkirk.steps.batch.in_epoch import InEpoch, empty
from falkirk.steps.batch.loop_files import LoopFolders
from falkirk.steps.dataframes.names import OUR_COLUMNS, STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame

#: Steps that need the rows of a key in their order.
_GROUPING = ("agg", "count", "windows", NEWEST_ROW)


def of_steps(steps: Sequence[Step], given: Frame, run: int) -> DataFrame:
    """Return the results of live steps. Args: run: its number, 0 for the first. Each run divides the rows in another
    way.

    The rows of a key stay in the order of their stamps, as in a live region.
    """
    frame = given if any(step.operation in _GROUPING for step in steps) else _divided(given, run)
    frame = replace(frame, is_run=True)
    for step in steps:
        if step.operation in _GROUPING:
            keys = [frames.key_column(key) for key in split_windows(step.arguments[0])[1]]
            frame = replace(frame, data=frame.data.repartition(run + 2, *keys).sortWithinPartitions(STAMP))
        frame = frames.apply(frame, step)
    return frame.own


def rerun_batch(batch: Batch, given: Mapping[str, Frame], session: SparkSession, run: int) -> list[DataFrame]:
    """Return the results of a batch's first epoch, and the values that the second epoch would begin with."""
    read = {i.name: _parameter(i, _divided(given[i.name], run)) for i in batch.inputs}
    rows = by_parameter(batch.inputs, read)
    if batch.state is not None:
        rows[batch.name] = empty(session, batch.state)
    epoch = EpochContext(views={i.name: 0 for i in batch.inputs if i.view})
    with tempfile.TemporaryDirectory(prefix="falkirk-audit-") as folder:
        data = LocalData(Path(folder))
        places = (data / str(i) for i in itertools.count())
        call = InEpoch(epoch, session, {}, lambda: next(places), files=LoopFolders(data / "files"))
        result, state = returned(batch.name, batch.body, batch.parameters, rows, batch.state, batch.where, call)
        kept = [*([] if state is None or state is result else [state]), *call.kept.values()]
        found = [
            rows.select(*[F.col(f"`{c}`") for c in rows.columns if c not in OUR_COLUMNS]).localCheckpoint()
            for rows in (result, *kept)
        ]
        call.clean()
    return found


def _divided(frame: Frame, run: int) -> Frame:
    """Return the same rows in other partitions and another order."""
    return replace(frame, data=frame.data.repartition(run + 2, F.xxhash64(F.lit(run), STAMP))) if run else frame


def _parameter(given: BatchInput, frame: Frame) -> DataFrame:
    columns = [F.col(f"`{c}`") for c in frame.columns if c != given.stamped]
    if given.stamped is None:
        return frame.data.select(*columns)
    stamp = F.col(STAMP)
    return frame.data.select(*columns, stamp_column(given, stamp["partition"], stamp["offset"], F.lit(0)))
