"""Terms: a few words about each term of Falkirk that a shown plan uses, for a reader without the documentation."""

import re
from collections.abc import Iterable, Iterator

#: Each term, the pattern of the texts that use it, and its meaning.
_TERMS = (
    ("home", r"\bthe home\b", "the folder of the application's checkpoints"),
    ("region", r"\bregions?\b", "one Spark query that always runs"),
    ("live", r"\blive\b", "in Spark's Real-time Mode, record by record"),
    ("two queries", r"\btwo queries\b", "both compute all results, and save their checkpoints at different times"),
    (
        "transactional",
        r"\blive, transactional\b",
        "in Kafka transactions; consumers set isolation.level=read_committed",
    ),
    ("hop X", r"\bhops? [^:]", "the internal topic that X writes; a replay reads its records in the same order"),
    ("replay", r"\breplay\b", "after a failure, the results since the last checkpoint are computed again"),
    ("deterministic", r"\bdeterministic\b", "computed again after a failure, the results are the same"),
    ("micro-batch", r"\bmicro-batch, ", "for a stream that can't run live; `--why` gives the reason"),
    ("iteration", r"\biteration, ", "a batch that repeats its steps in a loop"),
    ("epoch", r"\bepochs?\b", "the part of its input that a batch processes in one run"),
    ("newest X", r"(?:^|, )newest ", "a table of the newest results of X (a view)"),
    ("view", r"(?<!-)\bviews?\b", "a table of the newest results of a stream or batch"),
)


def terms_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield a line for each term in the texts."""
    texts = tuple(texts)
    for term, pattern, meaning in _TERMS:
        if any(re.search(pattern, text) for text in texts):
            yield f"{term}: {meaning}"
