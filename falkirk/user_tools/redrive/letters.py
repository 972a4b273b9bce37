"""Letters: reads the dead letters of an application, and decides which of them can be sent again.

An input that did not fit can be sent again: it has had no effect yet. A result that was too large can't: its input has
had an effect, and would have it twice. A letter of a live step says itself whether its input has had another effect
(steps/live/effects.py). One input may be in the dead letters of several regions; it is still sent once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from falkirk.kafka_client.ranges import Message, read_messages
from falkirk.kafka_client.signing import Foreign, ForeignTally, RejectedHeader, VerifiedHeader
from falkirk.platform.stored import parse_json
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.rows import NOT_WRITTEN, RAW_BYTES_MAX, TOO_LARGE
from falkirk.steps.dataframes.user_function import FAILED
from falkirk.steps.live.effects import HAD_EFFECT, MAY_CHANGE, ONCE_COVERED, RESEND, SAFE
from falkirk.steps.live.event_time import is_of_time
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import LogId, LogKind, Offset, cluster_of
from falkirk.theory.offsets import PartitionRange

Origin = tuple[LogId, int, Offset]
"""The place of an input: topic, partition, offset."""
LetterKind = Literal[
    "input", "result", "had_effect", "may_change", "uncovered", "cancelled", "elsewhere", "file", "row", "foreign",
    "unknown",
]  # fmt: skip
#: The character that replaces bytes that are not text.
_LOST = "\N{REPLACEMENT CHARACTER}"
#: The length of the stamp of a record that is an input itself: source, partition, offset.
_NUMBERS_OF_INPUT = 3
_NO_INPUT = RejectedHeader("a place where no input can be")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter.

    Args:
        region: the region that wrote it.
        kind: `input`: a record of a source that did not fit, or on which a function failed. `result`: a result that was
            too large for its topic. `had_effect`: the input may have had another effect. `may_change`: a replay may
            give a result in place of the letter. `uncovered`: likewise, until a checkpoint covers the input.
            `cancelled`: a rollback made it invalid, and its input was processed again. `elsewhere`: its input is on
            another cluster, where Falkirk writes nothing. `file`: a row of a file. `row`:
            a row on which a function failed, and which is not known to be a record of a source. `foreign`: this home
            did not write it, or its input can't be the one that it names. `unknown`: from a source that the application
            no longer has.
        origin: the place of an input.
        key, value: those of a record that did not fit, as the letter has them. A letter keeps only text, and only the
            first 64 KiB of the value.
        has_record: whether the letter contains key and value.
        is_of_time: whether its event time is the reason.
        waits: whether it can be sent only once a checkpoint covers the input.
    """

    region: str
    kind: LetterKind
    origin: Origin | None = None
    key: bytes | None = None
    value: str | None = None
    has_record: bool = True
    is_of_time: bool = False
    waits: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the letter alone contains the input's whole key and value."""
        if not self.has_record:
            return False
        text = self.value or ""
        if not text.isascii() and max(text) >= "\ud800" and any("\ud800" <= c <= "\udfff" for c in text):
            return False  # half of a surrogate pair: no record's text contains it
        cut_off = len(text.encode(errors="replace")) >= RAW_BYTES_MAX - len(_LOST.encode())
        return not cut_off and _LOST not in text + (self.key or b"").decode(errors="replace")


def read_letters(
    place: Storage,
    dead_letters: str,
    region: str,
    sources: Mapping[str, LogId],
    *,
    stamped: bool,
    added: int = 0,
    covered: Callable[[], OffsetFrontier] = lambda: EMPTY,
) -> Iterator[Letter]:
    """Yield the dead letters of a region; none if the topic does not exist.

    Args: dead_letters: the topic. sources: topics that the application reads, by the sources' names. stamped: whether
        the letters' headers name their inputs, as those of live regions do. added: the sub-indexes that each stamp has
        from the region's keyed step. covered: returns the input that no recovery makes the region read again.
    Raises: LogError.
    """
    topics = place.topics
    if not topics.exists(dead_letters):
        return
    first, last = topics.first_positions(dead_letters), topics.readable_positions(dead_letters)
    verifier, foreign = place.verifier(dead_letters), ForeignTally()
    cancelled, upto = place.home.store.voided_ranges(LogId(dead_letters)), None
    ends: dict[LogId, Mapping[int, Offset]] = {}
    for message in read_messages(place.connection, dead_letters, first, last, committed=True):
        found = verifier.verify_message(message)
        if _is_within(message, cancelled) and not isinstance(found, RejectedHeader):
            yield Letter(region=region, kind="cancelled")
            continue
        letter = Letter(region=region, kind="foreign")
        if not isinstance(found, RejectedHeader):
            letter = parse_letter(region, message.key(), message.value(), sources)
            if stamped and letter.kind == "input" and letter.is_of_time:
                letter = _of_time(letter, found, added)
            if letter.origin is not None and cluster_of(letter.origin[0]):
                yield Letter(region=region, kind="elsewhere")
                continue
            if letter.origin is not None and letter.origin[0] not in ends:
                ends[letter.origin[0]] = topics.readable_positions(letter.origin[0])
            if not _can_be(letter, found, ends, stamped=stamped):
                letter, found = Letter(region=region, kind="foreign"), _NO_INPUT
            elif letter.waits and letter.origin is not None:
                if upto is None:
                    # A recovery cancels letters before another checkpoint covers their input.
                    upto, cancelled = covered(), place.home.store.voided_ranges(LogId(dead_letters))
                topic, partition, offset = letter.origin
                if offset >= upto.length_of(topic, partition):
                    letter = Letter(region=region, kind="uncovered")
                elif _is_within(message, cancelled):
                    letter = Letter(region=region, kind="cancelled")
        if isinstance(found, RejectedHeader):
            foreign.add(Foreign(partition=message.partition(), offset=message.offset(), reason=found))
        yield letter
    place.note_foreign(dead_letters, foreign, refuse=False)


def _is_within(message: Message, ranges: Iterable[PartitionRange]) -> bool:
    partition, offset = message.partition(), message.offset()
    assert offset is not None, "it was read"
    return any(each.partition == partition and each.covers(Offset(offset)) for each in ranges)


def _can_be(
    letter: Letter, header: VerifiedHeader, ends: Mapping[LogId, Mapping[int, Offset]], *, stamped: bool
) -> bool:
    """Return whether the input that a letter names can exist, and equals the input that its header names."""
    if letter.origin is None:
        return True
    topic, partition, offset = letter.origin
    if not 0 <= offset < ends[topic].get(partition, 0):
        return False
    return header.signed or not stamped or header.numbers[1:3] == (partition, offset)


def parse_letter(region: str, key: bytes | None, value: bytes | None, sources: Mapping[str, LogId]) -> Letter:
    """Return the letter in a record of the dead letters."""
    try:
        content = parse_json(value or b"")
        reason = str(content["reason"])
        resend = content.get(RESEND)
        if resend in (HAD_EFFECT, MAY_CHANGE):
            return Letter(region=region, kind="had_effect" if resend == HAD_EFFECT else "may_change")
        if resend not in (SAFE, ONCE_COVERED) and (reason.startswith(FAILED) or "source" in content):
            return _of_function(region, content, sources)
        topic, text = LogId(content["topic"]), content.get("value")
    except (ValueError, KeyError, TypeError, RecursionError):
        return Letter(region=region, kind="unknown")
    if reason.startswith((TOO_LARGE, NOT_WRITTEN)):
        return Letter(region=region, kind="result")
    if topic.kind is LogKind.FILES:
        return Letter(region=region, kind="file")
    place = _place(content)
    if topic not in sources.values() or place is None or not isinstance(text, str | None):
        return Letter(region=region, kind="unknown")
    origin = (topic, *place)
    if resend in (SAFE, ONCE_COVERED):  # the letter has the columns that the step got
        return Letter(region=region, kind="input", origin=origin, has_record=False, waits=resend == ONCE_COVERED)
    return Letter(region=region, kind="input", origin=origin, key=key, value=text, is_of_time=is_of_time(reason))


def _of_time(letter: Letter, header: VerifiedHeader, added: int) -> Letter:
    """Return the letter of a live record with an unsuitable time. It has only the columns that the step got.

    Earlier versions of Falkirk wrote it, and did not say whether the record can be sent again. If the stamp has more
    sub-indexes than `added`, the record may be one of several that were made from an input, and the others have had an
    effect.
    """
    if len(header.numbers) > _NUMBERS_OF_INPUT + added:
        return Letter(region=letter.region, kind="had_effect")
    return replace(letter, key=None, value=None, has_record=False)


def _place(content: Mapping[str, Any]) -> tuple[int, Offset] | None:
    """Return the partition and offset that a letter names, or None if Kafka can't have a record there."""
    partition, offset = content.get("partition"), content.get("offset")
    for number, limit in ((partition, 1 << 31), (offset, 1 << 63)):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < limit:
            return None
    return cast("tuple[int, Offset]", (partition, offset))


def _of_function(region: str, content: Mapping[str, Any], sources: Mapping[str, LogId]) -> Letter:
    topic, place = sources.get(content.get("source", "")), _place(content)
    if topic is None or place is None:
        return Letter(region=region, kind="row")
    return Letter(region=region, kind="input", origin=(topic, *place), has_record=False)
