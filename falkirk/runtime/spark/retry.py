"""Retries: how often a region, an epoch or a delivery is tried again, and after which pause."""

#: The number of failures in a row after which a further try is unlikely to help.
FAILURES_MAX = 5
#: The pauses before the next tries, in seconds. The last one is repeated.
PAUSES_S = (0.0, 1.0, 2.0, 5.0, 10.0)
#: The pause before further tries of a part that the others do not need, after so many failures in a row.
RARE_S = 300.0


def pause_s(failures: int) -> float:
    """Return the pause before the next try in seconds. Args: failures: the number of failures in a row, from 1."""
    return PAUSES_S[min(failures, len(PAUSES_S)) - 1]
