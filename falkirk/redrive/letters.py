"""Letters: what is in the dead letters of an application, and which of it can be sent again.

An input that did not fit can: it has had no effect yet. A result that was too large can't: the input behind it has had
its effect, and would have it twice. One input may be in the dead letters of several regions, and then is still one.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from falkirk.logs.connection import Connection
from falkirk.logs.ranges import read_messages
from falkirk.logs.topics import Topics
from falkirk.plan.batch import is_file_log
from falkirk.regions.rows import RAW_BYTES_MAX, TOO_LARGE

Origin = tuple[str, int, int]
"""Where an input is: topic, partition, offset."""
Kind = Literal["input", "result", "file", "unknown"]
#: What stands for bytes that are no text.
_LOST = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter.

    Args:
        region: whose it is.
        kind: `input`: a record of a source that did not fit. `result`: one that was too large for its topic. `file`: a
            row of a file. `unknown`: none of Falkirk's, or of a source that the application no longer has.
        origin: of an input.
        key, value: as the letter has them, of the value only its first 64 KiB, and of both what is text.
    """

    region: str
    kind: Kind
    origin: Origin | None = None
    key: bytes | None = None
    value: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the input's key and value can be had from the letter alone."""
        text = self.value or ""
        cut_off = len(text.encode(errors="replace")) >= RAW_BYTES_MAX - len(_LOST.encode())
        return not cut_off and _LOST not in text + (self.key or b"").decode(errors="replace")


def read_letters(
    connection: Connection, topics: Topics, dead_letters: str, region: str, sources: Collection[str]
) -> Iterator[Letter]:
    """Yield the dead letters of a region, none while there is no such topic.

    Args: dead_letters: the topic. sources: topics that the application reads.
    Raises: LogError.
    """
    if not topics.exists(dead_letters):
        return
    first, last = topics.first_positions(dead_letters), topics.readable_positions(dead_letters)
    for message in read_messages(connection, dead_letters, first, last, committed=True):
        yield letter_of(region, message.key(), message.value(), sources)


def letter_of(region: str, key: bytes | None, value: bytes | None, sources: Collection[str]) -> Letter:
    """Return what a record of the dead letters says."""
    try:
        content = json.loads(value or b"")
        reason, topic = str(content["reason"]), str(content["topic"])
        text = content.get("value")
    except (ValueError, KeyError, TypeError):
        return Letter(region=region, kind="unknown")
    if reason.startswith(TOO_LARGE):
        return Letter(region=region, kind="result")
    if is_file_log(topic):
        return Letter(region=region, kind="file")
    place = (content.get("partition"), content.get("offset"))
    if topic not in sources or not all(isinstance(n, int) for n in place):
        return Letter(region=region, kind="unknown")
    return Letter(region=region, kind="input", origin=(topic, *place), key=key, value=text)
