"""The errors that Falkirk raises: one tree, each saying what happened, where, and what to do about it.

    FalkirkError
    ├── DefinitionError        the declared graph is wrong; names the user's line
    │   └── GuaranteeError     the policy can't meet what was asked, and why
    ├── MachineError           this machine lacks something: Java, a dependency, a free port, a running broker
    ├── HomeError              the home is in use, belongs to another application, or is damaged
    ├── StoreError             the store of decisions could not be read or written
    ├── LogError               a Kafka topic is not what the application needs it to be, or can't be reached
    ├── SparkError             Spark refused or lost something
    ├── UnrecoverableError     no consistent frontier is left; lists what is missing
    └── InternalError          our bug: this should never happen, please report it

Every error carries a `condition` (a stable name in capitals) and `parameters` (plain values), so a program or a
test looks at those and never at the prose.
"""

from typing import Literal

Certainty = Literal["definitely", "maybe"]


class FalkirkError(Exception):
    """Base of everything Falkirk raises on purpose.

    Args:
        condition: stable upper-case name of what went wrong, such as ``UNKNOWN_UPSTREAM``.
        message: what happened, in one sentence.
        where: the user's line, a topic, a folder: whatever the reader has to look at.
        hint: what to do about it.
        parameters: the plain values behind the message.
    """

    def __init__(
        self, condition: str, message: str, *, where: object = None, hint: str = "", **parameters: object
    ) -> None:
        self.condition = condition
        self.message = message
        self.where = where
        self.hint = hint
        self.parameters = parameters
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where is not None else ""
        advice = f" {self.hint}" if self.hint else ""
        return f"{self.message}{place}{advice}"


class DefinitionError(FalkirkError):
    """The declared graph is wrong. `where` is the user's source line."""


class GuaranteeError(DefinitionError):
    """What was asked of an output cannot be promised on the ground that the declaration gives."""


class MachineError(FalkirkError):
    """This machine lacks something that a run needs."""


class HomeError(FalkirkError):
    """The home folder is in use, belongs to another application, or is damaged."""


class _UncertainError(FalkirkError):
    """An error of an outside effect, which says whether the effect definitely or only maybe failed."""

    def __init__(
        self,
        condition: str,
        message: str,
        *,
        certainty: Certainty = "definitely",
        where: object = None,
        hint: str = "",
        **parameters: object,
    ) -> None:
        self.certainty = certainty
        super().__init__(condition, message, where=where, hint=hint, **parameters)


class StoreError(_UncertainError):
    """The store of decisions could not be read or written."""


class LogError(_UncertainError):
    """A Kafka topic is not what the application needs it to be, or cannot be reached."""


class SparkError(_UncertainError):
    """Spark refused or lost something."""


class UnrecoverableError(FalkirkError):
    """No consistent frontier is left. `parameters["missing"]` lists what would be needed."""


class InternalError(FalkirkError):
    """This should never happen: a bug of Falkirk. Please report it."""


#: Of a LogError or StoreError: there was no answer, and all goes on once there is one.
AWAY = ("BROKER_AWAY", "STORE_AWAY")


def is_away(error: BaseException) -> bool:
    """Tell whether an error is only that the broker or the store is away."""
    return isinstance(error, LogError | StoreError) and error.condition in AWAY
