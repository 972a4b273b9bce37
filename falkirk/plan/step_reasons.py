"""Reasons of steps: how long a live step keeps a key, which records are late, which view it reads, and Python calls."""

from collections.abc import Iterator, Sequence

from falkirk.declare.nodes import LOOKUP, NEWEST_ROW, Step, roots_of
from falkirk.declare.policy import duration_s
from falkirk.declare.watermark import ProcessingTime, watermark_of_state
from falkirk.plan.event_time import step_text
from falkirk.plan.python_steps import function_name
from falkirk.plan.reasons import Reason, ReasonKind, duration_text, listed
from falkirk.steps.live.python_udfs import TIMEOUT_S
from falkirk.steps.static_analysis import udfs

#: The steps with event time. All others that have a reason call Python.
_TIMED = ("dropDuplicates", "windows", "timedJoin")


def of_step(step: Step, processor: str, topic: str, *, in_full: bool = True) -> Iterator[Reason]:
    """Yield the reason of a live step, if the step itself has one.

    Args: topic: the source of its region. in_full: it is the first lookup of its region.
    """
    kind: ReasonKind = (
        "event-time" if step.operation in _TIMED else "view" if step.operation in (LOOKUP, NEWEST_ROW) else "python"
    )
    text = _text_of(step, topic) if in_full or step.operation != LOOKUP else _of_other_view(step)
    if text is not None:
        yield Reason(kind=kind, processor=processor, where=step.where, text=text)


def of_chain(steps: Sequence[Step], processor: str) -> Reason:
    """Return the reason of several keyed steps in one region. Args: steps: these. processor: whose they are."""
    names = listed([f"{_keyed_name(step)} (line {step.where.line})" for step in steps])
    text = (
        f"{names} are in one live query, without a hop: their keys contain the columns by which its input is "
        "partitioned. So all their states of a key are in one state partition, which runs them one after the other."
    )
    return Reason(kind="chain", processor=processor, where=steps[-1].where, text=text)


def of_joins(steps: Sequence[Step], processor: str) -> Reason:
    """Return the reason of several joins in one region. Args: steps: these. processor: whose they are."""
    names = listed([f"{step_text(step)} (line {step.where.line})" for step in steps])
    text = (
        f"{names} are in one live query, because the key of each has that of the first one. So one state partition "
        "has all records of a key. A result of a join has the time of its left record. The next join keeps a row until "
        "no partition of any source can bring a partner."
    )
    return Reason(kind="chain", processor=processor, where=steps[-1].where, text=text)


def _keyed_name(step: Step) -> str:
    return "groupBy()" if step.operation in ("agg", "count") else step_text(step)


def _text_of(step: Step, topic: str) -> str | None:
    if step.operation == "dropDuplicates":
        return _of_first(step, topic)
    if step.operation == "windows":
        return _of_windows(step, topic)
    if step.operation == "timedJoin":
        return _of_table(step) if step.arguments[1].as_of else _of_join(step)
    if step.operation in ("map_rows", "stateful"):
        return _of_python(step)
    if step.operation == LOOKUP:
        return _of_view(step)
    if step.operation == NEWEST_ROW:
        return _of_latest(step)
    names = dict.fromkeys(f"{udf.name}()" for udf in udfs.of_values(step.arguments))
    return _of_udfs(step, [*names]) if names else None


def _of_udfs(step: Step, names: Sequence[str]) -> str:
    return (
        f"{step.operation}() runs live: each task has a Python process, which calls {' and '.join(names)} for one "
        f"record after the other, before Spark computes the step. If a process dies, or the calls for a record take "
        f"longer than {duration_text(TIMEOUT_S)}, another process gets the record. If a function fails, the record "
        f"becomes a dead letter."
    )


def _of_view(step: Step) -> str:
    name = step.arguments[0].name
    return (
        f"lookup() runs live: the newest results of {name} are in the memory of the JVM. For each record, it uses "
        "those that are there when the record arrives, and no failure can change these any more. Until the first "
        f"epoch of {name} is complete, records wait."
    )


def _of_latest(step: Step) -> str:
    keys, name = step.arguments
    key = ", ".join(f"`{each}`" for each in keys)
    return (
        f"lookup() of a stream runs live: its state has the newest row of each {key}, for ever. The log before it has "
        f"the records and these rows in one order. So `{name}` is the newest row before the record in that order, in "
        "every replay too. A row that is on its way when a record arrives may be before it or after it."
    )


def _of_other_view(step: Step) -> str:
    return f"The lookup() of {step.arguments[0].name} runs live in the same way."


def _of_first(step: Step, topic: str) -> str:
    keys, watermark = step.arguments
    delay = duration_text(watermark.delay_us / 1e6)
    return (
        f"dropDuplicates() runs live: {topic} is partitioned by its key, so one partition has all records with "
        f"the same {', '.join(f'`{key}`' for key in keys)}. Each partition has its own time: the greatest "
        f"`{watermark.column}` among its records so far, in every replay too. A key is forgotten when that time has "
        f"passed the key's first record by {delay}. A record that is more than {delay} older than that time is "
        "late."
    )


def _of_windows(step: Step, topic: str) -> str:
    _, _, mode, watermark = step.arguments
    delay = duration_text(watermark.delay_us / 1e6)
    gives = "Each record gives an updated result of each of its windows" if mode == "update" else (
        "A window gives one result, when it closes"
    )  # fmt: skip
    return (
        f"Windows run live: {topic} is partitioned by their key, so one partition has all records with the same "
        f"key. Each partition has its own time: the greatest `{watermark.column}` among its records so far, in every "
        f"replay too. A window closes when that time has passed the window's end by {delay}. {gives}. A record is late "
        f"if all its windows have closed."
    )


def _of_join(step: Step) -> str:
    join = step.arguments[1]
    first, second = join.names
    kept = [name for name, keeps in zip(join.names, join.keeps, strict=True) if keeps]
    alone = "".join(
        f" A record of {name} without a partner gives a result when no partition of "
        f"{second if name == first else first} can still bring one."
        for name in kept
    )
    delays = " and ".join(
        f"{duration_text(watermark.delay_us / 1e6)} of {name}"
        for name, watermark in zip(join.names, join.watermarks, strict=True)
    )
    return (
        f"join() runs live: a pair of {first} and {second} is a result when its later record arrives. A record is "
        f"late if it is older than the time of its own partition, less the delay ({delays}). So every replay finds the "
        f"same pairs, though in another order. To find the pairs that are already published, Falkirk compares the "
        f"stamps of both records.{alone}"
    )


def _of_table(step: Step) -> str:
    join = step.arguments[1]
    stream, table = join.names
    delay = duration_text(join.watermarks[1].delay_us / 1e6)
    key = ", ".join(f"`{name}`" for name in join.on)
    within = None if join.within_us is None else duration_text(join.within_us / 1e6)
    alone = " gives a result without one" if join.keeps[0] else " gives no result"
    young = "" if within is None else f", and is at most {within} older"
    kept = "The newest version of each key is kept for ever." if within is None else (
        f"A version is deleted when it is {within} older than all records that may still come."
    )  # fmt: skip
    return (
        f"join_asof() runs live: a record of {stream} waits until the time of each partition of {table} has "
        f"passed its own time by {delay}. So a partition of {table} without new records holds results. The record then "
        f"meets the newest version of {key} in {table} that is not later{young}; a record without such a version"
        f"{alone}. A record of either stream is late if it is older than the time of its own partition, less the "
        f"delay. So every replay finds the same version for each record. {kept}"
    )


def cost_of_order(step: Step) -> str:
    """Return the cost of `stateful(order=)`, and what it saves."""
    delay = duration_text(step.arguments[1]["order"].watermark.delay_us / 1e6)
    names = listed([root.name for root in roots_of(step.parent)])
    return (
        f"a record waits in the state until the slowest partition of {names} is {delay} past it, and no byte is "
        "written to an internal topic"
    )


def _of_python(step: Step) -> str:
    function, options = step.arguments
    watermark, kept = watermark_of_state(options), ""
    if isinstance(watermark, ProcessingTime):
        kept = (
            f" {function_name(options['timers'].function)}() is called when the clock of withClock() has reached a "
            "key's timer, also without new records."
        )
    elif watermark is not None:
        kept = (
            f" Each partition has its own time: the greatest `{watermark.column}` among its records so far, less "
            f"{duration_text(watermark.delay_us / 1e6)}, in every replay too. A record that is older than that time is "
            "late."
        )
    if "order" in options and watermark is not None:
        kept += (
            f" Records wait until the time of each partition has passed them. Then {function_name(function)}() gets "
            f"those of a key in the order of `{watermark.column}`, partition and offset. This order is the same in "
            "every replay, so no internal topic records it. A partition without new records holds all results."
        )
    if "expiry" in options:
        after = duration_text(options["expiry"].after_us / 1e6)
        kept += f" The state of a key is deleted when that time has passed the key's newest record by {after}."
    if "timers" in options and not isinstance(watermark, ProcessingTime):
        kept += f" {function_name(options['timers'].function)}() is called when that time has reached a key's timer."
    called = function_name(function)
    limit = duration_text(duration_s(options["timeout"]))
    return (
        f"{step.operation}() runs live: each task has a Python process, which calls {called}() for one record "
        f"after the other. If a process dies, or a call takes longer than {limit}, another process gets the record."
        + kept
    )
