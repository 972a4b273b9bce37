"""Jobs: the parts of a job that the latency bench measures, and the frame of a job with one operator."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from falkirk.declare.stream import Stream

#: Records to send: identity, key, value, and the number of results that each causes.
Records = list[tuple[str, str, str, int]]
#: The time of the first record, of those that have one.
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
#: The number of partitions of each topic.
PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measured job: its name, its source's schema, and the output field that names the causing record.

    Args: body: returns the results of its sources' streams; None: the example's steps. sources: their number. is_plain:
        plain Real-time Mode can do it, too. looks_up: its body also gets a view, the counts of `_known`. records:
        returns a number of records at a rate per second; None: those of the other jobs. ticks_s: its body also gets a
        clock with this interval. due_s: results are due so much later than their records arrive, and the latency
        counts from there. has_twins: its region can have twins.
    """

    name: str
    title: str
    schema: str
    key: str | None
    identity_field: str
    output_key: str
    body: Callable[..., Stream] | None = None
    sources: int = 1
    is_plain: bool = True
    looks_up: bool = False
    records: Callable[[int, float], Records] | None = None
    ticks_s: float | None = None
    due_s: float = 0.0
    has_twins: bool = True

    def has(self, variant: str) -> bool:
        """Return whether the job can run as this variant."""
        return {"none": self.is_plain, "twins": self.has_twins}.get(variant, True)


def operator(name: str, title: str, body: Callable[..., Stream], *, sources: int = 1) -> Job:
    """Return a job of one operator, which Real-time Mode does not have by itself."""
    return Job(
        name=name, title=title, schema="word STRING, n STRING, at TIMESTAMP", key="word" if sources == 1 else None,
        identity_field="n", output_key="word", body=body, sources=sources, is_plain=False,
    )  # fmt: skip
