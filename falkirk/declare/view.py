"""View: the mark of a parameter that reads the newest epoch of another processor, and the keys of lookups."""

from collections.abc import Mapping
from typing import Any

from falkirk.errors.conditions.lookups import LOOKUP_INVALID
from falkirk.errors.location import SourceLocation


class View:
    """Marks a parameter as a view, such as ``def answers(queries, weights: fk.View)``.

    A batch gets the newest complete epoch of `weights` as a DataFrame. Falkirk records the number of that epoch before
    it is used, so a replay reads the same epoch. A function under `App.stream` gets a `View` for `Stream.lookup`.

    Args: name: of the processor that is read.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"view {self.name}"


def lookup_keys(
    keys: Mapping[str, Any], name: object, epoch: object, where: SourceLocation
) -> tuple[tuple[str, str], ...]:
    """Return the key of a lookup in the newest rows of a stream: columns of the table, each with that of the record.

    Raises: DefinitionError: `LOOKUP_INVALID`.
    """
    reason = None
    if epoch is not None:
        reason = "epoch= is for a parameter marked fk.View, and the rows of a stream have no epochs"
    elif not all(isinstance(each, str) for each in keys.values()):
        reason = "on= has an expression, and fk.Newest needs the name of a column: compute the column first"
    elif name in keys.values():
        reason = f"{name!r} is a column of the key"
    if reason is not None:
        raise LOOKUP_INVALID.error(where=where, reason=reason)
    return tuple(keys.items())
