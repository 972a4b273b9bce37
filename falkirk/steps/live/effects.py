"""Effects: whether the record of a dead letter may have had another effect than this letter.

A step that makes a row bad knows this, and nobody can tell it from the letter later. If an earlier step gave several
rows of one record, or has a state, the record may have other results, or is in that state. `falkirk redrive` would make
these happen twice. A raw record has a key, and such a row has none. So the step puts a mark there, and the letter has
the answer in the field `resend`.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from falkirk.steps.dataframes.names import BAD, STAMP

#: The field of a dead letter.
RESEND = "resend"
#: Its values: the record can be sent again; it can be once a checkpoint covers it, because until then a replay may give
#: a result in place of the letter; it can't be, because it may have had another effect; or because a replay may give a
#: result at any time.
SAFE, ONCE_COVERED, HAD_EFFECT, MAY_CHANGE = "safe", "once_covered", "had_effect", "may_change"
#: The marks. A raw record whose key equals one of them loses its key in the letter. Its topic still has the key.
_ALONE, _OTHERS = "falkirk: no other effect", "falkirk: may have another effect"


def mark(is_alone: bool | Column) -> Column:
    """Return the mark of a row that a step makes bad.

    Args: is_alone: the row is the only one of its record, and no earlier step has a state.
    """
    alone = F.lit(is_alone) if isinstance(is_alone, bool) else is_alone
    return F.when(alone, F.lit(_ALONE)).otherwise(F.lit(_OTHERS)).cast("binary")


def key_of_letter() -> Column:
    """Return the key of a dead letter: that of the raw record, or null for a row that a step has made bad."""
    key = F.col(f"{BAD}.key")
    return F.when(~_is(_ALONE) & ~_is(_OTHERS), key)


def resend(reason: Column, *, inside: tuple[int, ...], of_function: str) -> Column:
    """Return the field `resend` of a dead letter; null if no step has said anything about the record.

    Args: reason: why it is a dead letter. inside: the numbers of the sources that are logs between regions: their
        records come from others, which have had an effect. of_function: the value for a record on which a function
        failed, if it has had no other effect.
    """
    from falkirk.steps.dataframes.user_function import FAILED  # importing pyarrow is slow

    others = _is(_OTHERS)
    if inside:
        others |= _is(_ALONE) & F.col(f"{STAMP}.source").isin(*inside)
    told = F.when(others, F.lit(HAD_EFFECT))
    if of_function != SAFE:
        told = told.when(_is(_ALONE) & reason.startswith(FAILED), F.lit(of_function))
    return told.when(_is(_ALONE), F.lit(SAFE))


def _is(known: str) -> Column:
    return F.coalesce(F.col(f"{BAD}.key") == F.lit(known).cast("binary"), F.lit(False))
