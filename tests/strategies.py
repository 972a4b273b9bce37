"""Hypothesis strategies that tests share."""

from hypothesis import strategies as st

from falkirk.theory.channel import Channel
from falkirk.theory.frontier import TOP, OffsetFrontier
from falkirk.theory.stamp import Stamp
from falkirk.theory.times import SequenceTime, TopicPartition

_small = st.integers(0, 3)
#: What a Kafka offset can be.
offsets = st.integers(0, 2**63 - 1)

# Few edges and short prefixes: laws break where things meet, and in a large universe they never meet.
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
    """Draw, for each source partition, its records, each the output partitions of its derivatives."""
    record = st.lists(st.integers(0, 2), max_size=3).map(tuple)
    return {p: draw(st.lists(record, max_size=6)) for p in range(draw(st.integers(1, 2)))}
