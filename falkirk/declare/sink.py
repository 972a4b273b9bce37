"""Sink: the protocol of sinks, which users can implement for their own store.

It imports no Spark when it runs: declaring an application needs none.
"""

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from falkirk.errors import DefinitionError
from falkirk.errors.conditions.declare import SINK_INVALID
from falkirk.errors.location import SourceLocation
from falkirk.errors.redaction import redact_urls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The longest address. The plan shows it in a table, and the home records it.
ADDRESS_CHARACTERS_MAX = 200


class Sink(Protocol):
    """A store that takes the epochs of batches, each exactly once. Implement it, and pass an object to `App.sink`.

    Falkirk makes sure of the following:

    - One process at a time calls a sink, and one `deliver` runs at a time. Epochs arrive in the order of their numbers.
      A number may be missing: its epoch was cancelled. An epoch may have no rows.
    - Falkirk asks `delivered` at each start, and before and after each `deliver`. It never delivers an epoch again that
      `delivered` covers.
    - If a call raises an exception, Falkirk logs it and tries again later. Everything else continues.
    - Every try of an epoch gets the same rows in the same order, also after a failure.

    So a sink has two duties. It remembers durably, together with the rows, which epochs it has. And `deliver` replaces
    the rest of an earlier try of the same epoch. Then the store has each result exactly once.
    """

    @property
    def address(self) -> str:
        """Where results go, in one line and without secrets. An attribute will do.

        The plan shows it. A home records it, and refuses to start if it changes. Two sinks never share an address.
        """
        ...

    def delivered(self) -> int:
        """Return the number after the newest epoch that is complete there, or 0 if there is none.

        Answer within seconds; otherwise the sink counts as unreachable. After `deliver(7, …)` the answer is 8. If a
        commit of a `deliver` that failed may still happen, wait for it, or raise an exception.
        """
        ...

    def deliver(self, epoch: int, rows: "DataFrame") -> None:
        """Store all rows of an epoch and its number durably, before the call returns.

        An earlier try may have ended at any point. Readers should see nothing of an epoch before it is complete:
        write it under another name and rename it, or use one transaction.

        Args: rows: in the order of the results. They can be read several times.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSink:
    """The declaration of a user's sink.

    Args: sink: the user's object. address: the address at the declaration, without secrets in URLs.
    """

    sink: Sink = field(repr=False)
    address: str
    where: SourceLocation = field(compare=False)

    keys: tuple[str, ...] = field(default=(), init=False)
    may_refuse: bool = field(default=False, init=False)
    remembers: bool = field(default=True, init=False)
    written_as: str = field(default="rows", init=False)


def is_sink(value: object) -> bool:
    """Return whether a value has a sink's members, without reading them: an address may be a property that fails."""
    missing = object()
    members = ("address", "delivered", "deliver")
    return not isinstance(value, type) and all(
        inspect.getattr_static(value, m, missing) is not missing for m in members
    )


def as_own(sink: Sink, where: SourceLocation) -> OwnSink:
    """Return the declaration of a user's sink.

    Raises: DefinitionError: `SINK_INVALID`.
    """
    kind, reason = type(sink).__name__, ""
    try:
        address = sink.address
    except Exception as error:
        raise _invalid(f"its address can't be read: {type(error).__name__}", kind, where) from error
    if not isinstance(address, str) or not address.strip() or not address.isprintable():
        reason = f"its address is {address!r}, and must be a text of one line"
    elif len(address) > ADDRESS_CHARACTERS_MAX:
        reason = f"its address has {len(address)} characters, and {ADDRESS_CHARACTERS_MAX} are allowed"
    elif not callable(sink.delivered) or not callable(sink.deliver):
        reason = "delivered and deliver must be methods"
    if reason:
        raise _invalid(reason, kind, where)
    return OwnSink(sink=sink, address=redact_urls(address.strip()), where=where)


def _invalid(reason: str, kind: str, where: SourceLocation) -> DefinitionError:
    return SINK_INVALID.error(where=where, kind=kind, reason=reason)
