"""Mechanisms: the ways in which systems recover from a failure, each in a few lines over the same parts.

This module does not say what each mechanism guarantees; `definitions` computes it. The parts are rules about B. Only B
survives a failure: results, snapshots and acknowledgements have left the system.
Source: Delivery, consistency, and determinism, §IV and §V; the Falkirk Wheel, §2.1, for acknowledgements.
"""

from collections.abc import Callable

from formal.elements import (
    RESULT,
    Batched,
    Element,
    Elements,
    Operation,
    Transform,
    inputs_of,
    parts,
    results_of,
    state_of,
)
from formal.system import System, acknowledged, saved, snapshot_of

Inputs = tuple[Element, ...]
Mechanism = Callable[[Operation], System]


def holds(outputs: Elements, element: Element) -> bool:
    """Return whether the last snapshot contains an element or something made from it: the element is recoverable."""
    return saved(outputs)[: len(element.lineage)] == element.lineage


# Rules for releasing and dropping results.


def when_saved(result: Element, outputs: Elements) -> bool:
    """Release only recoverable results."""
    return holds(outputs, result)


def barrier(result: Element, outputs: Elements) -> bool:
    """Drop results with t ≤ that of the last result that the consumer has accepted. Source: §V-A2."""
    return any(result.t <= e.t for e in outputs if e.kind == RESULT)


def once_per_input(result: Element, outputs: Elements) -> bool:
    """Drop the result of an input that is processed again, if a result of the input is already published."""
    return any(result.t == e.t for e in outputs if e.kind == RESULT)


def once_per_turn(result: Element, outputs: Elements) -> bool:
    """Drop the n-th result if the consumer has n results, whatever inputs they come from."""
    return len(result.lineage) <= sum(e.kind == RESULT for e in outputs)


# Rules for transforming.


def in_order(transform: Transform, working: Elements, outputs: Elements) -> bool:
    """Take inputs by t. They enter by t, so the first waiting input is the first of all."""
    return inputs_of(working)[0] in transform.taken


def after_saving(transform: Transform, working: Elements, outputs: Elements) -> bool:
    """Let nothing depend on a state that is not recoverable."""
    return holds(outputs, state_of(working))


def one_by_one(transform: Transform, working: Elements, outputs: Elements) -> bool:
    """Take the next input after the result of the former one has left."""
    return not results_of(working)


# Recoveries.


def restored(initial: Element, outputs: Elements) -> Elements:
    """Return the content of the last snapshot without the results that the consumer has."""
    snapshot = snapshot_of(outputs)
    return parts(snapshot) - outputs if snapshot else frozenset((initial,))


def replay(initial: Element, inputs: Inputs, outputs: Elements) -> Elements:
    """R: the last snapshot, and every input that is not in it."""
    return restored(initial, outputs) | {a for a in inputs if a.t not in saved(outputs)}


def replay_unacknowledged(initial: Element, inputs: Inputs, outputs: Elements) -> Elements:
    """R: the last snapshot, and every input that is not acknowledged, whether the snapshot contains it or not."""
    return restored(initial, outputs) | {a for a in inputs if a.t[0] not in acknowledged(outputs)}


def skip(initial: Element, inputs: Inputs, outputs: Elements) -> Elements:
    """R: the last snapshot. Inputs that were not yet processed are lost."""
    return restored(initial, outputs)


# The mechanisms.


def naive_replay(operation: Operation) -> System:
    """Replay the inputs that are not in the snapshot, in any order, and release all results."""
    return System(name="naive replay", operation=operation, recover=replay, admits=one_by_one)


def naive_replay_once(operation: Operation) -> System:
    """The same, but each input's result is released once: "exactly-once" as it is commonly understood.

    Source: §III-D, on Table II.
    """
    return System(
        name="naive replay, each result once",
        operation=operation,
        recover=replay,
        admits=one_by_one,
        drops=once_per_input,
    )


def record_acknowledgements(operation: Operation) -> System:
    """Storm: saves state and result before the result is released, and replays a record until it is acknowledged.

    This is upstream backup. If a failure prevents an acknowledgement, the input is applied a second time.
    """
    return System(
        name="record acknowledgements",
        operation=operation,
        recover=replay_unacknowledged,
        admits=one_by_one,
        releases=when_saved,
        acknowledges=True,
    )


def strong_productions(operation: Operation) -> System:
    """MillWheel: saves every result and state before anything depends on it. Source: §IV-A."""
    return System(
        name="strong productions", operation=operation, recover=replay, admits=after_saving, releases=when_saved
    )


def micro_batches(operation: Operation) -> System:
    """Trident, Spark Streaming: small collections as atomic elements; results are saved together. Source: §IV-B."""
    return System(
        name="micro-batches",
        operation=Batched(operation),
        recover=replay,
        admits=after_saving,
        releases=when_saved,
    )


def distributed_snapshots(operation: Operation) -> System:
    """Flink: results wait until the snapshot that contains them is committed. Source: §IV-C."""
    return System(name="distributed snapshots", operation=operation, recover=replay, releases=when_saved)


def over_determinism(operation: Operation) -> System:
    """FlameStream: inputs by t, results on arrival, a barrier. Snapshots and releases do not wait for each other.

    Source: §V.
    """
    return System(
        name="exactly-once over determinism", operation=operation, recover=replay, admits=in_order, drops=barrier
    )


def ordered_replay(operation: Operation) -> System:
    """The same without the barrier."""
    return System(name="ordered replay without a barrier", operation=operation, recover=replay, admits=in_order)


def skipping(operation: Operation) -> System:
    """Strong productions, but after a failure the unprocessed inputs are skipped."""
    return System(
        name="skipping what was under way", operation=operation, recover=skip, admits=after_saving, releases=when_saved
    )


MECHANISMS: tuple[Mechanism, ...] = (
    naive_replay,
    naive_replay_once,
    record_acknowledgements,
    micro_batches,
    strong_productions,
    distributed_snapshots,
    over_determinism,
    ordered_replay,
    skipping,
)
