"""Conditions: kinds of errors as data. `falkirk/errors/conditions/` lists them all.

The texts are templates with named fields. A raise site names a condition and gives values for the fields; tests and
programs compare the condition's name and the values.
"""

from string import Formatter
from typing import Any, Generic, TypeVar

from falkirk.errors import Certainty, FalkirkError

E = TypeVar("E", bound=FalkirkError)


class _Listing(Formatter):
    """Formats `{names:listed}` as the texts of all values, with commas."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ", ".join(map(str, value)) if format_spec == "listed" else str(super().format_field(value, format_spec))


_FORMATTER = _Listing()


class Condition(Generic[E]):
    """A kind of error.

    Some conditions have several texts, because they occur in several situations: each is a separate object with the
    same name.

    Args:
        name: stable upper-case name, such as ``UNKNOWN_UPSTREAM``.
        kind: the class of the error.
        message: one sentence about the event. `{names:listed}` lists several values.
        hint: how to fix it.
        certainty: of errors of an external effect: whether the effect definitely or only maybe failed.

    >>> from falkirk.errors import LogError
    >>> expired = Condition("INPUT_EXPIRED", LogError, "records of {topic!r} were deleted.", hint="Use a new home.")
    >>> print(expired.error(where="app.py:3", topic="clicks", partition=0))
    records of 'clicks' were deleted. (app.py:3) Use a new home.
    """

    __slots__ = ("certainty", "hint", "kind", "message", "name")

    def __init__(
        self, name: str, kind: type[E], message: str, *, hint: str = "", certainty: Certainty | None = None
    ) -> None:
        self.name, self.kind, self.message, self.hint, self.certainty = name, kind, message, hint, certainty

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields in the texts."""
        texts = (self.message, self.hint)
        return frozenset(name for text in texts for _, name, _, _ in _FORMATTER.parse(text) if name is not None)

    def error(self, *, where: object = None, **parameters: object) -> E:
        """Return the error.

        Args: where: the place of the error. parameters: the fields of the texts, and others. Exceptions become texts.
        """
        parameters = {name: str(v) if isinstance(v, BaseException) else v for name, v in parameters.items()}
        certainty = {} if self.certainty is None else {"certainty": self.certainty}
        message, hint = (_FORMATTER.vformat(text, (), parameters) for text in (self.message, self.hint))
        return self.kind(self.name, message, where=where, hint=hint, **certainty, **parameters)
