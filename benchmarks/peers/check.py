"""Check: compares each result's count with the input, so that a lost or doubled record shows in the table."""

from collections import Counter
from collections.abc import Iterable

from benchmarks.job import Records

#: Identity of a record, and the count that a system gave for it.
Result = tuple[str, int]


def true_counts(records: Records) -> dict[str, int]:
    """Return the right count of each record, by its identity: the number of its word's records up to it."""
    seen: Counter[str] = Counter()
    counts = {}
    for identity, word, _, _ in records:
        seen[word] += 1
        counts[identity] = seen[word]
    return counts


def wrong_results(results: Iterable[Result], counts: dict[str, int]) -> int:
    """Return the number of results whose count differs from the input's, with those of unknown records."""
    return sum(counts.get(identity) != count for identity, count in results)
