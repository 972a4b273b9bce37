"""The newest records that former incarnations of a join can have read: markers of transactions are no records."""

from collections.abc import Iterable, Mapping

import pytest

from falkirk.runtime.spark.live.inputs import last_offsets
from falkirk.theory.positions import is_caught_up

#: The records of partitions. After them are the offsets of aborted records and of markers.
RECORDS = {0: [0, 1, 3], 1: [], 2: [*range(0, 400, 2)], 3: [5]}
ENDS = {0: 6, 1: 3, 2: 30_000, 3: 6}


def read(first: Mapping[int, int], last: Mapping[int, int]) -> Iterable[tuple[int, int]]:
    for partition, offsets in RECORDS.items():
        yield from ((partition, o) for o in offsets if first[partition] <= o < last[partition])


@pytest.mark.parametrize(
    ("begin", "newest"),
    [
        ({0: 0, 1: 0, 2: 0, 3: 0}, {0: 3, 2: 398, 3: 5}),
        ({0: 4, 1: 3, 2: 398, 3: 5}, {2: 398, 3: 5}),
        (ENDS, {}),
    ],
)
def test_the_last_record_is_found_before_gaps_down_to_the_checkpoint(
    begin: dict[int, int], newest: dict[int, int]
) -> None:
    assert last_offsets(read, begin, ENDS) == newest


def test_a_commit_after_the_last_record_covers_a_partition_that_ends_with_a_marker() -> None:
    """Spark commits the offset after the last record, and not the end of the partition."""
    before = {(0, p): o for p, o in last_offsets(read, dict.fromkeys(ENDS, 0), ENDS).items()}
    committed = {(0, 0): 4, (0, 1): 0, (0, 2): 399, (0, 3): 6}
    assert is_caught_up(before, committed)
    assert not is_caught_up(before, committed | {(0, 0): 3})
    assert not is_caught_up({(0, p): end - 1 for p, end in ENDS.items()}, committed)
