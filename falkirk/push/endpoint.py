"""Http: a source that clients post requests to, as declared by the user, and the topic that the requests wait in.

To the planner such a source *is* a topic of the application's own. So all that holds for topics holds for it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from falkirk.endpoints import Kafka
from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation, caller
from falkirk.logs.internal import internal_topic
from falkirk.policy import duration_s

#: An id is remembered at least this long: a client that was cut off asks again within it.
WINDOW_LEAST_S = 60.0


@dataclass(frozen=True, slots=True)
class RequestTopic(Kafka):
    """The topic that the requests of an `Http` source are in until nothing will ask for them again."""


@dataclass(frozen=True, slots=True)
class Http:
    """A source of requests over HTTP. A client that posts one is acknowledged when all that came of it is outside, and
    gets its answer when that is.

    Args:
        path: that requests are posted to, such as ``"/queries"``.
        schema: the columns of a request as Spark DDL; the body is a JSON object of them.
        id: the column, a string, that tells requests apart: the same id is the same request, asked again.
        answers: the sink, a topic keyed by the request's id, that the answers go to; None: there are none.
        timeout: how long a client waits at most; it may then ask again with the same id.
        window: for how long at least a request with an id that is known is taken for the same one.
    """

    path: str
    schema: str
    id: str = "id"
    answers: str | None = None
    timeout: str | float = "30 seconds"
    window: str | float = "1 hour"
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not re.fullmatch("(/[A-Za-z0-9_-]+)+", self.path):
            raise DefinitionError(
                "PATH_INVALID",
                f"{self.path!r} is not a path that requests can be posted to.",
                where=self.where,
                hint='Write fk.Http("/queries", …): letters, digits, "-" and "_" between slashes.',
                path=self.path,
            )
        if self.timeout_s <= 0 or self.window_s < WINDOW_LEAST_S:
            raise DefinitionError(
                "OPTION_UNKNOWN",
                f"timeout={self.timeout!r}, window={self.window!r} are not possible.",
                where=self.where,
                hint=f"The timeout is more than nothing, the window at least {WINDOW_LEAST_S:g} seconds.",
                timeout=self.timeout,
                window=self.window,
            )

    @property
    def timeout_s(self) -> float:
        """How long a client waits at most, in seconds."""
        return duration_s(self.timeout)

    @property
    def window_s(self) -> float:
        """For how long at least an id is remembered, in seconds."""
        return duration_s(self.window)

    def refuse_same_path(self, others: "Iterable[Http]") -> None:
        """Raises: DefinitionError: `NAME_TAKEN`: another source is at the same path."""
        if any(other.path == self.path for other in others):
            raise DefinitionError(
                "NAME_TAKEN",
                f"there is already a source at the path {self.path!r}.",
                where=self.where,
                hint="Give each source of requests a path of its own.",
                name=self.path,
            )

    def topic(self, application: str, identity: str, source: str) -> RequestTopic:
        """Return the topic that the requests are in: of one home, whose identity is part of its name.

        All records of one id are in one partition, since the gateway alone writes it.
        """
        name = internal_topic(application, identity, source)
        return RequestTopic(name, schema=self.schema, key=self.id, where=self.where)
