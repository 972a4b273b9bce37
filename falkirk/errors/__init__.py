"""The errors that Falkirk raises: one tree, and each says what happened, where, and how to fix it.

    FalkirkError
    ├── DefinitionError        the declared graph is wrong; names the user's line
    │   └── GuaranteeError     the policy can't meet the requested guarantee; says why
    ├── MachineError           this machine lacks something: Java, a dependency, a free port, a running broker
    ├── HomeError              the home is in use, belongs to another application, or is damaged
    ├── StoreError             the store of decisions, or of the data, could not be read or written
    ├── LogError               a Kafka topic does not fit the application, or can't be reached
    ├── SparkError             Spark refused or lost something
    ├── UnrecoverableError     no consistent frontier is left; lists what is missing
    └── InternalError          our bug: this should never happen, please report it

Every error carries a `condition` (a stable name in capitals) and `parameters` (plain values), so that programs and
tests can use them instead of the text. The texts are in `falkirk/errors/conditions/`, one template per condition.
"""

from typing import Any, Literal

Certainty = Literal["definitely", "maybe"]


class FalkirkError(Exception):
    """Base class of all errors that Falkirk raises on purpose.

    Args:
        condition: stable upper-case name of the error, such as ``UNKNOWN_UPSTREAM``.
        message: one sentence about the event.
        where: the place of the error, such as the user's line, a topic or a folder.
        hint: how to fix it.
        parameters: the plain values in the message.
    """

    def __init__(
        self, condition: str, message: str, *, where: object = None, hint: str = "", **parameters: object
    ) -> None:
        self.condition = condition
        self.message = message
        self.where = where
        self.hint = hint
        self.parameters: dict[str, Any] = parameters
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where is not None else ""
        advice = f" {self.hint}" if self.hint else ""
        return f"{self.message}{place}{advice}"


class DefinitionError(FalkirkError):
    """The declared graph is wrong. `where` is the user's source line."""


class GuaranteeError(DefinitionError):
    """The declaration does not allow the promise that an output should make."""


class MachineError(FalkirkError):
    """This machine lacks something that a run needs."""


class HomeError(FalkirkError):
    """The home folder is in use, belongs to another application, or is damaged."""


class _UncertainError(FalkirkError):
    """An error of an external effect; says whether the effect definitely or only maybe failed."""

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
    """The store of decisions, or the object store with the data of a home, could not be read or written."""


class LogError(_UncertainError):
    """A Kafka topic does not fit the application, or can't be reached."""


class SparkError(_UncertainError):
    """Spark refused or lost something."""


class UnrecoverableError(FalkirkError):
    """No consistent frontier is left. `parameters["missing"]` lists the missing data."""


class InternalError(FalkirkError):
    """This should never happen: it is a bug in Falkirk. Please report it."""


#: Conditions of a LogError or StoreError that has no answer yet; work continues once there is an answer.
AWAY = ("BROKER_AWAY", "DATA_AWAY", "STORE_AWAY", "REGISTRY_AWAY")


def is_away(error: BaseException) -> bool:
    """Return whether an error only means that the broker, a store or a schema registry does not answer."""
    return isinstance(error, LogError | StoreError) and error.condition in AWAY
