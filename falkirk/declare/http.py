"""Http: a source to which clients post requests, as declared by the user, and the topic that stores the requests.

The planner sees this source as an internal topic of the application. So everything that holds for topics holds for it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Duration, duration_s
from falkirk.errors.conditions.declare import NAME_TAKEN_PATH, OPTION_UNKNOWN_SHORT, PATH_INVALID
from falkirk.errors.location import SourceLocation, caller
from falkirk.kafka_client.internal import internal_topic

#: The shortest window of an id: within it, a client whose connection broke can retry.
WINDOW_LEAST_S = 60.0


@dataclass(frozen=True, slots=True)
class RequestTopic(Kafka):
    """The topic that stores the requests of an `Http` source until no reader and no retry needs them."""


@dataclass(frozen=True, slots=True)
class Http:
    """A source of requests over HTTP.

    A client gets its answer once the answer is published. A client without an answer gets a confirmation once all
    results of its request are published.

    Args:
        path: where clients post requests, such as ``"/queries"``.
        schema: the columns of a request as Spark DDL; the body is a JSON object with these columns.
        id: the `STRING` column that identifies a request: a request with the same id is a retry.
        answers: the sink with the answers, a topic whose key is the request's id; None: requests have no answers.
        timeout: how long a client waits at most; after that it may retry with the same id.
        window: for at least this long, a request with a known id counts as a retry.
    """

    path: str
    schema: str
    id: str = "id"
    answers: str | None = None
    timeout: Duration = "30 seconds"
    window: Duration = "1 hour"
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not re.fullmatch("(/[A-Za-z0-9_-]+)+", self.path):
            raise PATH_INVALID.error(where=self.where, path=self.path)
        if self.timeout_s <= 0 or self.window_s < WINDOW_LEAST_S:
            raise OPTION_UNKNOWN_SHORT.error(
                where=self.where, timeout=self.timeout, window=self.window, window_least_s=WINDOW_LEAST_S
            )

    @property
    def timeout_s(self) -> float:
        """How long a client waits at most, in seconds."""
        return duration_s(self.timeout)

    @property
    def window_s(self) -> float:
        """How long an id is remembered at least, in seconds."""
        return duration_s(self.window)

    def refuse_same_path(self, others: "Iterable[Http]") -> None:
        """Refuse a path that another source has.

        Raises: DefinitionError: `NAME_TAKEN`.
        """
        if any(other.path == self.path for other in others):
            raise NAME_TAKEN_PATH.error(where=self.where, name=self.path)

    def topic(self, application: str, identity: str, source: str) -> RequestTopic:
        """Return the topic of the requests. Its name contains the identity of the home, so each home has its own topic.

        All records of one id are in one partition, since only the gateway writes the topic.
        """
        name = internal_topic(application, identity, source)
        return RequestTopic(name, schema=self.schema, key=self.id, where=self.where)
