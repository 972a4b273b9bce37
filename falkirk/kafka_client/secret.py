"""A secret: a text that is used but never printed, put into a message, or written to a pickle."""

import os

from falkirk.errors.conditions.kafka_client import SECRET_MISSING, SECRET_NOT_PICKLED

_FROM_ENVIRONMENT = "env:"


class Secret:
    """A password, or the environment variable that contains it (``env:NAME``), which is read at each use.

    Only a reference to the environment can be pickled. A plain text can't, since a pickle ends up in files and on other
    machines.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def origin(self) -> str:
        """Where the secret comes from, in a form that may be shown."""
        if self._text.startswith(_FROM_ENVIRONMENT):
            return f"the environment variable {self._text.removeprefix(_FROM_ENVIRONMENT)}"
        return "the argument"

    @property
    def is_set(self) -> bool:
        """Whether the secret has a value."""
        return bool(self._value())

    def reveal(self) -> str:
        """Return the plain text.

        Raises: DefinitionError: `SECRET_MISSING`: the secret is empty, or the environment variable is no longer set.
        """
        value = self._value()
        if not value:
            raise SECRET_MISSING.error(origin=self.origin)
        return value

    def _value(self) -> str | None:
        if self._text.startswith(_FROM_ENVIRONMENT):
            return os.environ.get(self._text.removeprefix(_FROM_ENVIRONMENT))
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        if not self._text.startswith(_FROM_ENVIRONMENT):
            raise SECRET_NOT_PICKLED.error()
        return (Secret, (self._text,))
