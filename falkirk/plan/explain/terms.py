"""Terms: a few words about each term of Falkirk that a shown plan uses, for a reader without the documentation."""

import re
from collections.abc import Iterable, Iterator

#: Each term, the pattern of the texts that use it, and its meaning.
_TERMS = (
    ("home", r"\bthe home\b", "the folder of the application's checkpoints"),
    ("region", r"\bregions?\b", "one Spark query that always runs"),
    ("live", r"\blive\b", "in Spark's Real-time Mode, record by record"),
    (
        "two queries",
        r"\btwo queries\b",
        "two Spark queries compute the same results, and save checkpoints at different times",
    ),
    (
        "transactional",
        r"\blive, transactional\b",
        "writes in Kafka transactions; consumers must set isolation.level=read_committed",
    ),
    ("hop X", r"\bhops? [^:]", "an internal topic that query X writes, and that each replay reads in the same order"),
    ("replay", r"\breplay\b", "after a failure, the results since the last checkpoint are computed again"),
    ("deterministic", r"\bdeterministic\b", "a replay gives the same results"),
    (
        "micro-batch",
        r"\bmicro-batch, ",
        "Spark's ordinary mode, for a stream that can't run live; `--why` gives the reason",
    ),
    ("iteration", r"\biteration, ", "a batch that repeats its steps in a loop"),
    ("epoch", r"\bepochs?\b", "the part of a batch's input that one run of the batch processes"),
    ("newest X", r"(?:^|, )newest ", "the newest results of X, as a table (fk.View)"),
    ("view", r"(?<!-)\bviews?\b", "a table of the newest results of a stream or batch"),
)


def terms_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield a line for each term in the texts, and for each term in those lines."""
    shown, count = [*texts], -1
    used: dict[str, str] = {}
    while len(used) > count:
        count = len(used)
        used |= {term: meaning for term, pattern, meaning in _TERMS if any(re.search(pattern, text) for text in shown)}
        shown += used.values()
    yield from (f"{term}: {used[term]}" for term, _, _ in _TERMS if term in used)
