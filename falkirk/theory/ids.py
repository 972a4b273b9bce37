"""Ids: types for the numbers and names of logs, epochs, checkpoints and incarnations, so that mypy tells them apart.

All numbers are plain integers at runtime, and a log's id is a text. A value gets its type where it enters: from the
store, Kafka, Spark, JSON, or a count. The rest of the code carries it.

    Offset            the place of a record in a partition, or of the next one. A log of epochs has epoch n at offset n
    EpochNumber       an epoch of a batch
    BatchId           a micro-batch of Spark, and so a checkpoint of a live region
    CheckpointNumber  a checkpoint of any region, as the recovery protocol counts: a BatchId or an EpochNumber, -1: none
    Incarnation       a start of a region, from 1
    LogId             a log: a topic, a log of epochs, or the files of a folder
"""

from enum import StrEnum
from typing import NewType

Offset = NewType("Offset", int)
EpochNumber = NewType("EpochNumber", int)
BatchId = NewType("BatchId", int)
CheckpointNumber = NewType("CheckpointNumber", int)
Incarnation = NewType("Incarnation", int)

INITIAL = CheckpointNumber(-1)
"""The checkpoint of the initial state."""


class LogKind(StrEnum):
    """The kind of a log. The value is the prefix of the log's id."""

    TOPIC = ""
    EPOCHS = "epochs"
    FILES = "files"


class LogId(str):
    """The id of a log, as the home records it.

    The id of a topic is the topic's name. Other ids contain a colon, which no topic's name can have.

    >>> LogId.of_epochs("totals"), LogId("totals").kind is LogKind.TOPIC, LogId("epochs:totals").kind is LogKind.EPOCHS
    ('epochs:totals', True, True)
    """

    __slots__ = ()

    @classmethod
    def of_epochs(cls, batch: str) -> "LogId":
        """Return the id of a batch's log of epochs."""
        return cls(f"{LogKind.EPOCHS}:{batch}")

    @classmethod
    def of_files(cls, source: str) -> "LogId":
        """Return the id of the log whose records are the files of a source."""
        return cls(f"{LogKind.FILES}:{source}")

    @property
    def kind(self) -> LogKind:
        """The kind of the log. A text that is no id, such as one of a forged record, counts as a topic."""
        named = (LogKind.EPOCHS, LogKind.FILES)
        return next((kind for kind in named if self.startswith(f"{kind}:")), LogKind.TOPIC)


Offsets = dict[int, Offset]
"""For each partition of a log, the offset of the next record."""
Positions = dict[LogId, Offsets]
"""For each of several logs and each of its partitions, the offset of the next record."""
