"""Fingerprint: what a region's checkpoint rests on, as text, to be compared when a home is opened again."""

import re
from typing import Any

from falkirk.endpoints import Kafka
from falkirk.plan import frames
from falkirk.plan.frames import Frame
from falkirk.plan.region import steps_of
from falkirk.stream import Node, Step

_LAMBDA = re.compile(r"(\w+_\d+|\((?:\w+_\d+(?:, )?)+\)) -> ")

#: What PySpark draws a seed for, anew in each process, unless it is given one.
_SEEDED = re.compile(r"\b(rand|randn|random|randstr|uniform|uuid|shuffle)\(")
_SEED = re.compile(r"(?<![\w.])-?\d{10,}L?(?=\))")


def fingerprint(
    reads: str,
    output: Kafka,
    released_to: Kafka | None,
    dead_letters: str,
    node: Node,
    frame: Frame,
    state_partitions: int,
) -> dict[str, str]:
    """Return what must stay the same, by name.

    Args: reads: the topic that the region reads. released_to: the sink's topic, when `output` is held back.
        dead_letters: the topic of what does not fit. node: its steps. frame: what they lead to.
    """
    keyed = [step for step in steps_of(node) if step.operation in ("agg", "count")]
    shape = ", ".join(f.simpleString() for f in frame.data.schema.fields if f.name == frames.STAMP)
    return {
        "reads": reads,
        "writes": output.topic,
        **({} if released_to is None else {"releases to": released_to.topic}),
        "dead letters": dead_letters,
        "stamp": shape,
        "keyed step": "; ".join(text_of(step) for step in keyed) or "none",
        "state partitions": str(state_partitions) if keyed else "none",
    }


def text_of(step: Step) -> str:
    """Return what a step says, without the seeds that PySpark draws and the numbers that it gives."""
    text = _render(step.arguments)
    return step.operation + _without_numbers(_SEED.sub("seed", text) if _SEEDED.search(text) else text)


def _render(value: Any) -> str:
    if isinstance(value, dict):
        return _render([*value.items()])
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_render, value)) + ")"
    if hasattr(value, "_jc"):
        return str(value._jc.toString())
    return str(value)


def _without_numbers(text: str) -> str:
    """Return the text with lambdas' parameters numbered from 0: PySpark counts them on through a whole process."""
    names: dict[str, str] = {}
    for parameters in _LAMBDA.findall(text):
        for name in re.findall(r"\w+", parameters):
            names.setdefault(name, f"λ{len(names)}")
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
