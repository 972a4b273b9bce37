"""Void records: those that a recovery cancelled, and those of an older incarnation after the fence of a later one."""

from hypothesis import given
from hypothesis import strategies as st

from falkirk.kafka_client.header import Header
from falkirk.kafka_client.signing import SigningKey, Verifier
from falkirk.kafka_client.tail import OwnRecords
from falkirk.kafka_client.void import Void, late_behind
from falkirk.recovery.decision_store import Store
from falkirk.theory.stamp import Stamp

#: The ends of partitions 0 and 1 that the second and the fourth incarnation found; the third read none.
FENCES = [(1, {0: 0, 1: 0}), (2, {0: 5, 1: 0}), (4, {0: 9, 1: 3})]


def test_late_is_what_an_older_incarnation_left_behind_a_fence() -> None:
    void = Void(fences=late_behind(FENCES))
    wrote = {o: [i for i in range(1, 5) if void.has(0, o, i)] for o in (4, 5, 8, 9, 100)}
    assert wrote == {4: [], 5: [1], 8: [1], 9: [1, 2, 3], 100: [1, 2, 3]}
    assert [void.has(1, o, 1) for o in (0, 2, 3)] == [True, True, True]
    assert not void.has(2, 5, 1)
    assert not void.has(0, 100, None), "a record of another writer is not late but foreign"


def test_a_range_that_was_taken_back_is_void_whoever_wrote_it() -> None:
    void = Void([(0, 3, 5), (0, 7, 8), (1, 0, 1)])
    assert [o for o in range(10) if void.has(0, o, 9)] == [3, 4, 7]


_fences = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5).map(
    lambda ends: [(n + 1, dict(enumerate(p))) for n, p in enumerate(sorted(ends))]
)
_ranges = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 11)), unique=True, max_size=4).map(
    lambda places: [(p, o, o + 1) for p, o in places]
)


@given(fences=_fences, ranges=_ranges, bounds=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_within_a_range_of_the_log_nothing_is_forgotten(
    fences: list[tuple[int, dict[int, int]]], ranges: list[tuple[int, int, int]], bounds: tuple[int, int]
) -> None:
    fences = [(n, {p: max(f[1][p] for f in fences[: i + 1]) for p in (0, 1)}) for i, (n, _) in enumerate(fences)]
    void, (first, last) = Void(ranges, late_behind(fences)), sorted(bounds)
    for part in (void.within({0: first, 1: first}, {0: last, 1: last}), void.within({0: first, 1: first})):
        for partition in (0, 1):
            for offset in range(first, last):
                for incarnation in range(1, 7):
                    late = any(offset >= f[partition] and incarnation < n for n, f in fences)
                    taken_back = (partition, offset, offset + 1) in ranges
                    assert part.has(partition, offset, incarnation) is (late or taken_back)


def test_a_late_record_is_no_part_of_the_tail() -> None:
    def header(incarnation: int, offset: int) -> bytes:
        stamp = Stamp(source=0, partition=0, offset=offset)
        return Header(application="deadbeef", incarnation=incarnation, stamp=stamp, state_partition=0).encode()

    key = SigningKey(secret=bytes(32), since_birth=False)
    own = OwnRecords(Verifier("hop", "deadbeef", key), Void(fences=late_behind(FENCES)))
    written = enumerate([header(1, 3), header(1, 4), header(2, 5), header(1, 6)], start=4)
    found = [own.header(0, offset, value) for offset, value in written]
    assert [None if each is None else each.numbers[2] for each in found] == [3, None, 5, None]
    assert own.foreign.count == 0


def test_the_store_knows_where_each_incarnation_found_a_log_to_end(store: Store) -> None:
    for region, topic in (("writer", "hop"), ("other", "out")):
        for end in (0, 7):
            number = store.open_incarnation(region, -1)
            store.record_fence(region, number, fence={topic: {0: end}})
    store.open_incarnation("writer", 3)  # it was interrupted before it had read the end
    assert store.fences("hop") == ((1, {0: 0}), (2, {0: 7}))
