"""Unions: puts the records of streams with the same columns beside each other, each with its stamp."""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from falkirk.declare.nodes import BESIDE, CLOCKED, UNIONS, Node, SourceNode, Step, is_right_first
from falkirk.errors.conditions.dataframes import UNION_INVALID_COLUMNS
from falkirk.steps.dataframes.names import BAD, STAMP, VIEWS, quoted
from falkirk.steps.live import stamped
from falkirk.steps.live.clocks import with_clock
from falkirk.steps.live.stamped import Frame, attempt, is_good


def number_source(frame: Frame, source: int) -> Frame:
    """Return the frame of a topic's records with the number of the source in their stamps."""
    stamp = F.struct(F.lit(source).alias("source"), F.col(f"{STAMP}.partition"), F.col(f"{STAMP}.offset"))
    return replace(frame, data=frame.data.withColumn(STAMP, stamp)) if source else frame


def after(
    node: Node, begin: Callable[[SourceNode], Frame], apply: Callable[[Frame, Step], Frame] = stamped.apply
) -> Frame:
    """Return the frame after a node of a live region with unions.

    Args: begin: returns the frame of a source, with its number. apply: returns the frame after a step.
    """
    if not isinstance(node, Step):
        assert isinstance(node, SourceNode), "the planner begins at sources"
        return begin(node)
    frame = after(node.parent, begin, apply)
    if node.operation not in UNIONS:
        return apply(frame, node)
    right = after(node.arguments[0].node, begin, apply)
    return attempt(frame, node, lambda: put_beside(frame, right, node))


def put_beside(left: Frame, right: Frame, step: Step) -> Frame:
    """Return the frame after a step that puts another stream, or the times of a clock, beside the records of one.

    Raises: DefinitionError: `UNION_INVALID`.
    """
    if step.operation == CLOCKED:
        return with_clock(left, right)
    if step.operation == BESIDE:
        left, right = _beside_table(left, right, step)
    return union_frames(left, right, step, right_first=is_right_first(step))


def union_frames(left: Frame, right: Frame, step: Step, *, right_first: bool = False) -> Frame:
    """Return the frame after `union` or `unionByName`. Its columns have the names and the order of the left ones.

    A stamp without sub-indexes gets those of the other side, all 0, so that all stamps have one type.

    Args: right_first: the plan has the right side first. Spark knows the sources of a checkpoint by their places.
    Raises: DefinitionError: `UNION_INVALID`: the columns or their types differ.
    """
    theirs = _beside(left, right, step)
    depth = max(left.depth, right.depth)
    ours = [name for name in (STAMP, BAD) if name in left.data.columns and name in right.data.columns]
    ours += [VIEWS] if _read_same_views(left, right) else []
    traced = any(BAD in f.data.columns and "traceback" in _fields(f) for f in (left, right))

    def of(frame: Frame, columns: list[str]) -> DataFrame:
        subs = [F.lit(0).alias(f"sub{i}") for i in range(frame.depth, depth)]
        own = [F.col(f"`{name}`").alias(known) for name, known in zip(columns, left.columns, strict=True)]
        data = frame.data
        if STAMP in ours and subs:
            data = data.withColumn(STAMP, F.struct(F.col(f"{STAMP}.*"), *subs))
        if BAD in ours and traced and "traceback" not in _fields(frame):
            data = data.withColumn(BAD, F.when(~is_good(), F.struct(F.col(f"{BAD}.*"), _no_traceback())))
        return data.select(*own, *ours)

    sides = of(left, left.columns), of(right, theirs)
    first, second = reversed(sides) if right_first else sides
    return Frame(data=first.union(second), depth=depth, several=True, is_run=left.is_run)


def _beside_table(records: Frame, table: Frame, step: Step) -> tuple[Frame, Frame]:
    """Return records and rows of a table with the same columns: those of a record, and one with a row of the table.

    A row of the table has the columns of the key of a record, and no others. Rows without a key are left out.

    Raises: TypeError: the column for the row is there already, or a key lacks a column or has another type.
    """
    _, keys, name = step.arguments
    if name.casefold() in {column.casefold() for column in records.columns}:
        raise TypeError(f"the records have a column {name} already")
    for theirs, ours in keys:
        kinds = [_kind(frame, column) for frame, column in ((table, theirs), (records, ours))]
        if kinds[0] != kinds[1]:
            raise TypeError(
                f"column {theirs} of the table is {kinds[0]}, and column {ours} of the records is {kinds[1]}"
            )
    row = F.struct(*[_named(column) for column in table.columns])
    kind = table.data.select(row.alias(name)).schema[name].dataType
    of_keys = {ours: theirs for theirs, ours in keys}
    columns = [
        (_named(of_keys[c]) if c in of_keys else F.lit(None)).cast(records.data.schema[c].dataType).alias(c)
        for c in records.columns
    ]
    has_key = F.lit(True)
    for theirs, _ in keys:
        has_key &= _named(theirs).isNotNull()
    known = table.data.where(~is_good() | has_key)
    rows = known.select(*columns, F.when(is_good(), row).alias(name), *map(F.col, table.carried))
    own = records.data.select(
        *map(_named, records.columns), F.lit(None).cast(kind).alias(name), *map(F.col, records.carried)
    )
    return replace(records, data=own), replace(table, data=rows)


def _read_same_views(left: Frame, right: Frame) -> bool:
    """Return whether the records of both sides know which epochs of the same views they read."""
    kinds = [frame.data.schema[VIEWS].dataType for frame in (left, right) if VIEWS in frame.data.columns]
    return len(kinds) == 2 and kinds[0] == kinds[1]


def _fields(frame: Frame) -> list[str]:
    kind = frame.data.schema[BAD].dataType
    return kind.fieldNames() if isinstance(kind, StructType) else []


def _no_traceback() -> Column:
    return F.lit(None).cast("string").alias("traceback")


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


def _named(name: str) -> Column:
    return F.col(quoted(name))


def _kind(frame: Frame, column: str) -> str:
    if column not in frame.columns:
        raise TypeError(f"there is no column {column}: the columns are {', '.join(frame.columns)}")
    return frame.data.schema[column].dataType.simpleString()
