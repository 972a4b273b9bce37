"""Endpoints: the Kafka topics that an application reads and writes, as declared by the user."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from falkirk.errors import DefinitionError
from falkirk.location import SourceLocation, caller

Format = Literal["json", "text", "binary"]


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka topic.

    Args:
        topic: its name.
        schema: a source's columns as Spark DDL, such as ``"id STRING NOT NULL, n INT"``; a record that does not fit
            goes to the dead letters. Text and binary sources have one column, ``value``.
        key: the column(s) by which the topic is partitioned. For a source it is a claim, checked while running: all
            records of one key come from one partition. For a sink it becomes the record's key.
        format: of the value: ``json`` (an object per record), ``text`` (UTF-8) or ``binary``.
        starting: where a new application begins to read, ``earliest`` or ``latest``.
        dead_letters: topic for what does not fit or is too large; named after the topic by default (see the plan).
    """

    topic: str
    schema: str | None = None
    key: str | Sequence[str] | None = None
    format: Format = "json"
    starting: Literal["earliest", "latest"] = "earliest"
    dead_letters: str | None = None
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        self._check_name(self.topic)
        if self.dead_letters is not None:
            self._check_name(self.dead_letters)
        for name, value, known in (
            ("format", self.format, ("json", "text", "binary")),
            ("starting", self.starting, ("earliest", "latest")),
        ):
            if value not in known:
                raise DefinitionError(
                    "OPTION_UNKNOWN",
                    f"{name}={value!r} is not known.",
                    where=self.where,
                    hint=f"Use one of {', '.join(known)}.",
                    option=name,
                    value=value,
                )

        if self.key is not None and not (self.keys and all(isinstance(k, str) and k for k in self.keys)):
            raise DefinitionError(
                "KEY_INVALID",
                f"key={self.key!r} names no columns.",
                where=self.where,
                hint='Write key="id" or key=["country", "id"], or leave it out.',
                key=self.key,
            )

    def _check_name(self, topic: object) -> None:
        if not isinstance(topic, str) or not re.fullmatch("[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
            raise DefinitionError(
                "TOPIC_NAME_INVALID",
                f"{topic!r} is not a topic name.",
                where=self.where,
                hint="Kafka takes letters, digits, '.', '_' and '-', at most 249 of them.",
                topic=topic,
            )

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, in order; empty when none was declared."""
        if self.key is None:
            return ()
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def ddl(self) -> str:
        """The columns of a source as Spark DDL."""
        if self.format == "text":
            return "value STRING"
        if self.format == "binary":
            return "value BINARY"
        return self.schema or ""


def as_topic(value: object, where: SourceLocation) -> Kafka:
    """Return `value` if it is a topic.

    Raises: DefinitionError: `NOT_A_TOPIC`.
    """
    if not isinstance(value, Kafka):
        raise DefinitionError(
            "NOT_A_TOPIC",
            f"{value!r} is not a topic.",
            where=where,
            hint='Write fk.Kafka("name", schema="id STRING, n INT").',
        )
    return value
