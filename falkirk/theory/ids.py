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

#: Between the name of a topic and its cluster.
_AT = "@"
INITIAL = CheckpointNumber(-1)
"""The checkpoint of the initial state."""


class LogKind(StrEnum):
    """The kind of a log. The value is the prefix of the log's id."""

    TOPIC = ""
    EPOCHS = "epochs"
    FILES = "files"


class LogId(str):
    """The id of a log, as the home records it.

    The id of a topic is the topic's name, and for a topic on another cluster ``name@cluster``. Ids of other logs begin
    with a word and a colon. No topic's name has an @ or a colon.

    >>> LogId.at("orders", "east"), topic_name("orders@east"), cluster_of("orders@east"), cluster_of("orders")
    ('orders@east', 'orders', 'east', '')
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

    @classmethod
    def at(cls, topic: str, cluster: str) -> "LogId":
        """Return the id of a topic on another cluster than the application's. Args: cluster: `Connection.label`."""
        return cls(f"{topic}{_AT}{cluster}")

    @property
    def kind(self) -> LogKind:
        """The kind of the log. A text that is no id, such as one of a forged record, counts as a topic."""
        named = (LogKind.EPOCHS, LogKind.FILES)
        return next((kind for kind in named if self.startswith(f"{kind}:")), LogKind.TOPIC)


def topic_name(topic: str) -> str:
    """Return the name that a topic has on its cluster. Args: topic: its id."""
    return topic.partition(_AT)[0]


def cluster_of(topic: str) -> str:
    """Return the cluster of a topic as its id names it; empty: the application's own. Args: topic: its id."""
    return topic.partition(_AT)[2]


Offsets = dict[int, Offset]
"""For each partition of a log, the offset of the next record."""
Positions = dict[LogId, Offsets]
"""For each of several logs and each of its partitions, the offset of the next record."""
