"""Letters: the newest dead letters of an application, as the page shows them. Their text comes from others."""

from collections.abc import Iterator, Mapping
from typing import Any

from falkirk.kafka_client.ranges import Message, read_messages
from falkirk.kafka_client.signing import RejectedHeader
from falkirk.plan.shape import Shape
from falkirk.platform.stored import parse_json
from falkirk.platform.terminal import plain_text
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import LogId, Offset

#: The number of letters that are shown, and of characters of a reason and a payload.
LETTERS_MAX, REASON_MAX, PAYLOAD_MAX = 50, 500, 2_000
#: The broker must answer within this time.
_STALL_S = 5.0


def newest_letters(place: Storage, shape: Shape) -> list[dict[str, Any]]:
    """Return the newest dead letters of all units, without those that a rollback made void.

    Those of this home come first, newest first, because others choose the times of theirs.

    Raises: LogError.
    """
    found = [letter for unit, topic in shape.dead_letters.items() for letter in _of_topic(place, unit, topic)]
    return sorted(found, key=lambda letter: (not letter["is_ours"], -letter["at_s"]))[:LETTERS_MAX]


def _of_topic(place: Storage, unit: str, topic: LogId) -> Iterator[dict[str, Any]]:
    if not place.topics.exists(topic):
        return
    first, last = place.topics.first_positions(topic), place.topics.readable_positions(topic)
    start = {p: max(first[p], Offset(last[p] - LETTERS_MAX)) for p in last}
    if all(start[p] >= last[p] for p in last):
        return
    void, verifier = place.void(topic), place.verifier(topic)
    for message in read_messages(place.connection, topic, start, last, stall_s=_STALL_S, committed=True):
        header = verifier.verify_message(message)
        rejected = isinstance(header, RejectedHeader)
        incarnation = None if isinstance(header, RejectedHeader) else header.incarnation
        if not void.has(message.partition(), message.offset(), incarnation):
            yield letter_values(unit, topic, message, is_ours=not rejected)


def letter_values(unit: str, topic: str, message: Message, *, is_ours: bool) -> dict[str, Any]:
    """Return a letter as plain values of bounded length. Args: is_ours: this home has written it."""
    content: Mapping[str, Any] = {}
    raw = message.value() or b""
    try:
        parsed = parse_json(raw)
        content = parsed if isinstance(parsed, dict) else {}
    except (ValueError, TypeError, RecursionError):
        content = {}
    value = content.get("value", content.get("row"))
    text = value if isinstance(value, str) else raw.decode(errors="replace")
    source = content.get("source", content.get("topic"))
    place = f"{source} {content.get('partition')}@{content.get('offset')}" if source is not None else ""
    reason = content.get("reason", "it is no dead letter of Falkirk")
    return {
        "id": f"{topic}/{message.partition()}@{message.offset()}",
        "unit": unit,
        "is_ours": is_ours,
        "at_s": message.timestamp()[1] / 1000,
        "reason": _cut(str(reason) if is_ours else f"not written by this home: {reason}", REASON_MAX),
        "source": _cut(place, REASON_MAX),
        "payload": _cut(text, PAYLOAD_MAX),
        "length": len(text),
    }


def _cut(text: str, most: int) -> str:
    shown = plain_text(text[:most])  # cut first: a letter may be as long as a record
    return shown if len(text) <= most else f"{shown}…"
