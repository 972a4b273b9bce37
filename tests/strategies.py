"""Hypothesis strategies that tests share."""

import json
import os
from typing import Any

from hypothesis import strategies as st

from falkirk.theory.channel import Channel
from falkirk.theory.frontier import TOP, OffsetFrontier
from falkirk.theory.stamp import Stamp
from falkirk.theory.times import SequenceTime, TopicPartition

#: `FALKIRK_EXAMPLES=4` runs four times as many examples of properties that take long.
_TIMES = int(os.environ.get("FALKIRK_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return how many random examples of a property to run; Hypothesis chooses others in each run."""
    return count * _TIMES


_small = st.integers(0, 3)
#: Possible Kafka offsets.
offsets = st.integers(0, 2**63 - 1)

# Few edges and short prefixes: laws break where values interact, and in a large universe they never do.
edges = st.builds(lambda t, p: TopicPartition(topic=t, partition=p), st.sampled_from(["a", "b"]), st.integers(0, 1))
sequence_times = st.builds(lambda e, o: SequenceTime(sequence=e, offset=o), edges, _small)
frontiers = st.one_of(st.just(TOP), st.dictionaries(edges, st.integers(0, 4)).map(OffsetFrontier.of))

stamps = st.builds(Stamp, _small, _small, offsets, st.lists(offsets, max_size=3).map(tuple))
channels = st.builds(
    lambda s, p, state, o: Channel(source=s, source_partition=p, state_partition=state, output_partition=o),
    _small,
    _small,
    _small,
    _small,
)


@st.composite
def inputs(draw: st.DrawFn) -> dict[int, list[tuple[int, ...]]]:
    """Draw the records of each source partition; each record is a list of its derivatives' output partitions."""
    record = st.lists(st.integers(0, 2), max_size=3).map(tuple)
    return {p: draw(st.lists(record, max_size=6)) for p in range(draw(st.integers(1, 2)))}


#: JSON that is too deeply nested for Python, and a number with too many digits.
DEEP, LONG, HUGE = b"[" * 100_000, "9" * 5_000, 10**400
#: Numbers and words close to the expected ones, and other values that JSON can contain.
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([-1, 2**31, 2**63, HUGE]), st.floats(),
    st.text(max_size=10), st.sampled_from(["events", "clicks", "\ud800", "\0", "²", "a" * 70_000, LONG]),
)  # fmt: skip
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


def objects(*names: str) -> st.SearchStrategy[Any]:
    """Objects with some of these names."""
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=3), values, max_size=len(names) + 1)


def documents(content: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """JSON with this content, complete or truncated; other JSON; and arbitrary bytes."""
    text = content.map(lambda found: json.dumps(found).encode())
    cut_off = st.builds(lambda whole, n: whole[: n % (len(whole) + 1)], text, st.integers(0, 100))
    return st.one_of(text, text, cut_off, values.map(lambda v: json.dumps(v).encode()), st.binary(max_size=50))
