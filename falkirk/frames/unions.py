"""Unions: puts the records of streams with the same columns beside each other, each with its stamp."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from falkirk.declare.nodes import Step
from falkirk.errors.conditions.frames import UNION_INVALID_COLUMNS
from falkirk.frames.names import BAD, STAMP
from falkirk.frames.stamped import Frame


def united(left: Frame, right: Frame, step: Step) -> Frame:
    """Return the frame after `union` or `unionByName`. Its columns have the names and the order of the left ones.

    A stamp without sub-indexes gets those of the other side, all 0, so that all stamps have one type.

    Raises: DefinitionError: `UNION_INVALID`: the columns or their types differ.
    """
    theirs = _beside(left, right, step)
    depth = max(left.depth, right.depth)
    ours = [name for name in (STAMP, BAD) if name in left.data.columns and name in right.data.columns]

    def of(frame: Frame, columns: list[str]) -> DataFrame:
        subs = [F.lit(0).alias(f"sub{i}") for i in range(frame.depth, depth)]
        own = [F.col(f"`{name}`").alias(known) for name, known in zip(columns, left.columns, strict=True)]
        data = frame.data
        if STAMP in ours and subs:
            data = data.withColumn(STAMP, F.struct(F.col(f"{STAMP}.*"), *subs))
        return data.select(*own, *ours)

    return Frame(data=of(left, left.columns).union(of(right, theirs)), depth=depth)


def _beside(left: Frame, right: Frame, step: Step) -> list[str]:
    """Return the columns of the right side, each at the place of its counterpart. Raises: as `united`."""
    known = {name.casefold(): name for name in right.columns}
    theirs = right.columns
    if step.operation == "unionByName":
        theirs = [known[name.casefold()] for name in left.columns if name.casefold() in known]
    types = [
        [frame.data.schema[name].dataType for name in names] for frame, names in ((left, left.columns), (right, theirs))
    ]
    if len(theirs) != len(right.columns) or [t.simpleString() for t in types[0]] != [
        t.simpleString() for t in types[1]
    ]:
        shown = [", ".join(f"{f.name} {f.dataType.simpleString()}" for f in each.own.schema) for each in (left, right)]
        raise UNION_INVALID_COLUMNS.error(where=step.where, operation=step.operation, left=shown[0], right=shown[1])
    return theirs
