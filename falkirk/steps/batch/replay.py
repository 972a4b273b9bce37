"""Replay: applies the steps that a stream has recorded to the DataFrames of a micro-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from falkirk.declare.nodes import LOOKUP, NEWEST_ROW, UNIONS, Node, Step, root_of, roots_of, steps_of
from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.stream import Stream
from falkirk.declare.watermark import Watermark, watermark_of_state
from falkirk.declare.windows import is_in_one_partition, split_windows
from falkirk.errors.conditions.batch import NOT_A_STREAM_BATCH, STAMP_MISSING_ORDER
from falkirk.steps.batch import watermarks
from falkirk.steps.batch.call import current_epoch
from falkirk.steps.batch.functions import map_rows, stateful
from falkirk.steps.batch.joins import join
from falkirk.steps.batch.latest import latest_rows
from falkirk.steps.batch.lookups import look_up
from falkirk.steps.batch.timed_joins import timed_join
from falkirk.steps.batch.waiting import ORDER, Side, in_order
from falkirk.steps.batch.watermarks import Times
from falkirk.steps.dataframes.names import BAD, GREATEST, STAMP, TIME
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.joins import PLACES
from falkirk.steps.live.stamped import Frame, attempt, good
from falkirk.steps.live.unions import put_beside
from falkirk.steps.static_analysis.columns import check_group


def replay(
    node: Node,
    given: Mapping[str, DataFrame],
    processor: DeclaredProcessor,
    keys: Mapping[str, Sequence[str]] | None = None,
) -> DataFrame:
    """Return the result of the steps.

    Args: given: by name, each with its stamps in a column `STAMP`. keys: by which sources are partitioned, by name.
    Raises: DefinitionError: `NOT_A_STREAM`; `STAMP_MISSING`: a step with a state follows a step that leaves no order.
    """
    return Replay(given=given, processor=processor, keys=keys or {}).after(node).own


@dataclass(kw_only=True)
class Replay:
    """The steps of one epoch. Args: given, processor, keys: see `replay`. has_order: the results of windows and of
    `stateful` have stamps, as in a query; then each source has one partition. times: the times of all partitions, by
    the watermark that moves them. limits: the watermarks of joins whose results are joined, by their steps."""

    given: Mapping[str, DataFrame]
    processor: DeclaredProcessor
    keys: Mapping[str, Sequence[str]]
    has_order: bool = False
    times: dict[int, Times] = field(default_factory=dict)
    limits: dict[int, DataFrame | None] = field(default_factory=dict)

    def after(self, node: Node) -> Frame:
        """Return the frame after a node."""
        if not isinstance(node, Step) and node.name in self.given:
            return frames.good(self.given[node.name])
        if not isinstance(node, Step):
            raise NOT_A_STREAM_BATCH.error(where=self.processor.where, processor=self.processor.name)
        if node.operation == "timedJoin":
            former = [_last_join(each) for each in (node.parent, node.arguments[0].node)]
            self.limits |= dict.fromkeys([id(each) for each in former if each is not None])
        frame = self.after(node.parent)
        if node.operation in ("withWatermark", "dropDuplicates", "windows"):
            return self._timed(node, frame)
        if node.operation == "timedJoin":
            return self._joined(node, frame)
        if node.operation == LOOKUP:
            view, on, name, epoch = node.arguments
            number = None if epoch is None else F.lit(current_epoch().views[view.name]).cast("long").alias(epoch)
            return attempt(frame, node, lambda: look_up(frame, view.name, self.given[view.name], on, name, number))
        if node.operation in UNIONS:
            right = self.after(node.arguments[0].node)
            return attempt(frame, node, lambda: put_beside(frame, right, node))
        if node.operation == NEWEST_ROW:
            self._require_stamps(frame, node)
            return attempt(frame, node, lambda: latest_rows(frame, node))
        if node.operation not in ("stateful", "join"):
            return self.plain(frame, node)
        options = _options(node)
        if node.operation == "join":
            other = node.arguments[0]
            assert isinstance(other, Stream), "checked when it was recorded"
            right = self.after(other.node)
            return frames.good(join(frame.own, right.own, node.arguments[1], where=node.where, **options))
        self._require_stamps(frame, node)
        by, rows, age, order = watermark_of_state(options), frame.data.drop(BAD), None, STAMP
        expiry, timers = options.pop("expiry", None), options.pop("timers", None)
        if by is not None and options.pop("order", None) is not None:
            rows, order = in_order(self._side(rows, node.parent, by), by, self.processor.name), ORDER
        elif by is not None:
            rows, age = watermarks.aged(rows, by, expiry, timers, self.processor.name, self.times[id(by)])
        rows = rows.drop(TIME, GREATEST)
        depth = frame.depth if self.has_order and order == STAMP and timers is None else None
        made = stateful(rows, node.arguments[0], order=order, where=node.where, age=age, depth=depth, **options)
        return frames.good(made, 0 if depth is None else depth + 1)

    def plain(self, frame: Frame, step: Step) -> Frame:
        """Return the frame after a step without a state."""
        if step.operation != "map_rows":
            return frames.apply(frame, step)
        return frames.good(map_rows(frame.own, step.arguments[0], where=step.where, **_options(step)))

    def _side(self, rows: DataFrame, node: Node, by: Watermark) -> Side:
        """Return rows with the names of the inputs that they come from. Args: node: their last step."""
        return Side(rows=rows, sources=tuple(root.name for root in roots_of(node)), times=self.times[id(by)])

    def _timed(self, step: Step, frame: Frame) -> Frame:
        self._require_stamps(frame, step)
        planned = frames.apply(frame, step)  # report the user's mistakes
        if step.operation != "withWatermark":
            check_group(frame, split_windows(step.arguments[0])[1], step.where)
        rows, watermark, name = frame.data.drop(BAD), step.arguments[-1], self.processor.name
        if step.operation == "withWatermark":
            sources = [root.name for root in roots_of(step)]
            made, self.times[id(watermark)] = watermarks.timed_rows(rows, watermark, name, sources)
            return frames.good(made, frame.depth)
        times = self.times[id(watermark)]
        if step.operation == "windows":
            is_own = self._is_in_one_partition(step)
            depth = frame.depth if self.has_order and is_own else None
            made = watermarks.of_windows(rows, step, planned, watermark, name, times, is_own=is_own, depth=depth)
            return frames.good(made, 0 if depth is None else depth + 1)
        return frames.good(watermarks.first_rows_of_key(rows, step.arguments[0], watermark, name, times), frame.depth)

    def _joined(self, step: Step, left: Frame) -> Frame:
        other, asked = step.arguments
        right = self.after(other.node)
        sides = []
        for frame, node, watermark in zip((left, right), (step.parent, other.node), asked.watermarks, strict=True):
            self._require_stamps(frame, step)
            rows, former = frame.data.drop(BAD), _last_join(node)
            of_join = former is not None
            sides.append(
                Side(rows=rows, limit=self.limits[id(former)]) if of_join else self._side(rows, node, watermark)
            )

        def made() -> Frame:
            are_joined = id(step) in self.limits
            results = timed_join(sides[0], sides[1], step, self.processor.name, are_joined=are_joined)
            if are_joined:
                self.limits[id(step)] = results.limit
            return good(results.rows, PLACES + left.depth + 2 + right.depth if are_joined else 0)

        return attempt(left, step, made)

    def _is_in_one_partition(self, step: Step) -> bool:
        before = steps_of(step.parent)
        if any(each.operation in UNIONS for each in before):
            return False
        return is_in_one_partition(step, before, self.keys.get(root_of(step).name, ()))

    def _require_stamps(self, frame: Frame, step: Step) -> None:
        if STAMP not in frame.data.columns:
            raise STAMP_MISSING_ORDER.error(where=step.where, operation=step.operation, processor=self.processor.name)


def _last_join(node: Node) -> Step | None:
    """Return the last join of the steps that lead to a node, if there is one."""
    return next((step for step in reversed(steps_of(node)) if step.operation == "timedJoin"), None)


def _options(step: Step) -> dict[str, Any]:
    """Return the options of a Python step, without that of live calls."""
    return {name: value for name, value in step.arguments[-1].items() if name != "timeout"}
