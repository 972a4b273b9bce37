"""Values of the store, and their form as text, which is always JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from falkirk.platform.stored import parse_json
from falkirk.theory.ids import BatchId, CheckpointNumber, EpochNumber, Incarnation, LogId, Offset, Positions
from falkirk.theory.objective import Measurements
from falkirk.theory.offsets import positions_from_json, positions_to_json

Marked = tuple[Positions, Positions]
"""How much of its inputs a region had read, and how much it had sent by then."""
RecoveryState = Literal["decided", "restored", "done"]
RequestState = Literal["open", "taken", "done", "failed", "seen"]


class DamagedValue(Exception):
    """A text in the store has another form than this module writes. Becomes the store's own error where it is read."""


def dump(value: object) -> str:
    """Return a value as JSON, the same text for the same value."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def load(text: object) -> Any:
    """Return what `dump` wrote.

    Raises: DamagedValue: it never wrote this.
    """
    try:
        return parse_json(text)  # type: ignore[arg-type]  # a damaged file may hold anything
    except (ValueError, TypeError) as error:
        raise DamagedValue(f"{text!r:.80} is no JSON") from error


def dump_positions(positions: Mapping[LogId, Mapping[int, Offset]]) -> str:
    """Return positions as JSON."""
    return dump(positions_to_json(positions))


def load_positions(text: object) -> Positions:
    """Return what `dump_positions` wrote.

    Raises: DamagedValue: it never wrote this.
    """
    try:
        return positions_from_json(load(text))
    except (ValueError, AttributeError) as error:
        raise DamagedValue(f"{text!r:.80} is no positions") from error


def dump_marks(marks: Iterable[Marked]) -> str:
    """Return marks as JSON."""
    return dump([[positions_to_json(read), positions_to_json(sent)] for read, sent in marks])


def load_marks(text: object) -> tuple[Marked, ...]:
    """Return what `dump_marks` wrote.

    Raises: DamagedValue: it never wrote this.
    """
    try:
        return tuple((positions_from_json(read), positions_from_json(sent)) for read, sent in load(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise DamagedValue(f"{text!r:.80} is no marks") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLetters:
    """The number of dead letters of a region in a topic. Args: positions: below them, in each partition, all count."""

    topic: str
    count: int
    positions: Mapping[int, Offset]


def dump_counted_letters(counted: CountedLetters) -> str:
    """Return it as JSON."""
    return dump([counted.count, positions_to_json({LogId(counted.topic): counted.positions})])


def load_counted_letters(text: object) -> CountedLetters:
    """Return what `dump_counted_letters` wrote. Raises: DamagedValue: it never wrote this."""
    try:
        count, positions = load(text)
        ((topic, found),) = positions_from_json(positions).items()
        return CountedLetters(topic=topic, count=int(count), positions=found)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedValue(f"{text!r:.80} is no count of dead letters") from error


def load_measurements(text: object) -> Measurements:
    """Return the measurements of a record. Numbers that only another version knows are left out.

    Raises: DamagedValue: it is no record of measurements.
    """
    content, names = load(text), {each.name for each in fields(Measurements)}
    if not isinstance(content, dict) or not all(isinstance(v, float | int | None) for v in content.values()):
        raise DamagedValue(f"{text!r:.80} is no measurements")
    return Measurements(**{name: value for name, value in content.items() if name in names})


def printable(text: str) -> str:
    """Return a free text (the message of somebody's error) without what a database refuses to keep: NUL characters
    and halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRecord:
    """The conditions under which a region's checkpoint is valid: its fingerprint, where it began to read, and its
    topics' partition counts."""

    fingerprint: dict[str, str]
    start_offsets: Positions
    partitions: dict[LogId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """Output positions observed by an incarnation no later than the start of any batch after `valid_from_commit`."""

    valid_from_commit: BatchId
    incarnation: Incarnation
    positions: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """Ξ(p, f) of a processor whose checkpoints Spark does not record: everything about it but its state.

    Args: number: of the checkpoint, growing. metadata: N̄, M̄, φ, D̄ and the other data that the processor needs.
    """

    processor: str
    number: EpochNumber
    made_at_s: float
    metadata: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A choice that is fixed from now on: an epoch's cut, the version that a batch read."""

    kind: str
    name: str
    number: int
    content: Any
    made_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenEpochs:
    """The sum of a batch's epochs from `first` to below `below`, whose records were deleted.

    Args: first: 0, unless a version of Falkirk without this sum deleted earlier ones. epochs, rows: the number of
        epochs that were not void, and of their results.
    """

    first: int
    below: int
    epochs: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A rollback of the application: to which of its checkpoints each processor returns (None: it stays), and how
    far that has come."""

    recovery: int
    reason: str
    decided: dict[str, CheckpointNumber | None]
    state: RecoveryState
    begun_at_s: float
    ended_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How far a held log's partition has been copied out to its sink."""

    topic: LogId
    partition: int
    released_exclusive: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the running application, and its outcome."""

    request: int
    kind: str
    arguments: Any
    state: RequestState
    answer: Any
