"""Clock: a source of times, as declared by the user, and the topic that has them.

The planner sees this source as an internal topic of the application, like one of requests over HTTP. So a moment of the
clock is a record: checkpoints, replays and rollbacks know it by its offset.
"""

from dataclasses import dataclass, field

from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Duration, duration_s
from falkirk.errors.location import SourceLocation, caller
from falkirk.kafka_client.internal import internal_topic

#: The column of a time, and the columns of the source.
AT = "at"
_SCHEMA = f"{AT} TIMESTAMP NOT NULL"


@dataclass(frozen=True, slots=True)
class ClockTopic(Kafka):
    """The topic that has the times of a `Clock`. Args: every_s: the time between two of them."""

    every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Clock:
    """A source of times: while the application runs, a record with the time of its clock arrives at intervals.

    `Stream.withClock` makes timers fire by these times. Their column is ``at``, a TIMESTAMP.

    Args: every: the interval. A timer fires up to this much later than its time.
    """

    every: Duration = "1 second"
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        duration_s(self.every)

    def topic(self, application: str, identity: str, source: str) -> ClockTopic:
        """Return the topic of the times. Its name contains the identity of the home, so each home has its own topic."""
        name = internal_topic(application, identity, source)
        return ClockTopic(name, schema=_SCHEMA, where=self.where, every_s=duration_s(self.every))
