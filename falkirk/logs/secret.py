"""A secret: a text that is used but never printed, put into a message, or written to a pickle."""

import os

from falkirk.errors import DefinitionError

_FROM_ENVIRONMENT = "env:"


class Secret:
    """A password, or the environment variable that holds it (``env:NAME``), read each time it is needed.

    Only a reference to the environment survives pickling; a plain text is refused, since a pickle ends up in
    files and on other machines.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def origin(self) -> str:
        """Where the secret comes from, fit to be shown."""
        if self._text.startswith(_FROM_ENVIRONMENT):
            return f"the environment variable {self._text.removeprefix(_FROM_ENVIRONMENT)}"
        return "the argument"

    @property
    def is_set(self) -> bool:
        """Whether there is anything behind it."""
        return bool(self._value())

    def reveal(self) -> str:
        """Return the plain text.

        Raises: DefinitionError: `SECRET_MISSING` when it is empty, or the environment variable has gone meanwhile.
        """
        value = self._value()
        if not value:
            raise DefinitionError(
                "SECRET_MISSING",
                f"a secret is empty: {self.origin} holds nothing.",
                hint="Set it before the start.",
            )
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
            raise DefinitionError(
                "SECRET_NOT_PICKLED",
                "a secret given as plain text does not leave this process.",
                hint='Give it as "env:NAME" to use the connection in other processes.',
            )
        return (Secret, (self._text,))
