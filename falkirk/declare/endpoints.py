"""Endpoints: the sources and targets of an application, as declared by the user.

Every target has these properties:

    address      where results go, as text without secrets
    written_as   in which form; a home records both, and refuses to start if one of them changes
    keys         the columns that identify a row
    may_refuse   whether a row may become a dead letter there
    remembers    whether it can tell which epochs it has, so that it gets each one once
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from falkirk.declare.keys import key_columns, key_text
from falkirk.declare.lake import Delta, Iceberg
from falkirk.declare.record_parts import RECORD_PARTS, avro_schema, names_parts
from falkirk.declare.registry import Registry
from falkirk.declare.sink import OwnSink
from falkirk.declare.topic_names import check_topic_name, topic_ids
from falkirk.errors.conditions.declare import (
    DATABASE_UNKNOWN,
    KEY_INVALID,
    OPTION_UNKNOWN_CHOICE,
    OPTION_UNKNOWN_FORMAT,
    OPTION_UNKNOWN_METADATA,
    OPTION_UNKNOWN_ROWS,
    TABLE_NAME_INVALID,
)
from falkirk.errors.location import SourceLocation, caller
from falkirk.kafka_client.connection import Connection
from falkirk.theory.ids import LogId, topic_name

Format = Literal["json", "text", "binary", "avro"]


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka topic, or several topics of a source that are read as one.

    Args:
        topic: its name. For a source also a list of names, ``fk.Kafka(["orders-eu", "orders-us"], …)``, or a pattern of
            whole names, ``fk.Kafka(re.compile(r"orders-.*"), …)``, which each start compares with the broker's topics.
            The records of all of them have the same schema, format and key.
        schema: the columns of a source as Spark DDL, such as ``"id STRING NOT NULL, n INT"``; a record that does not
            fit becomes a dead letter. Text and binary sources have one column, ``value``. For Avro, the schema of a
            record as JSON, or the name of a file with it; for a JSON sink with `registry`, the JSON Schema likewise.
        key: the column(s) by which the topic is partitioned. For a source this is a claim, which Falkirk checks for
            every record: all records of one key come from one partition. For a sink the column(s) become the record's
            key.
        format: of the value: ``json`` (an object per record), ``text`` (UTF-8), ``binary`` or ``avro`` (its binary
            encoding; for values with the prefix of a schema registry, also give `registry`). Sinks write JSON or Avro.
        starting: where a new application starts to read, ``earliest`` or ``latest``. A topic that a list or a pattern
            gets later is read from its earliest record.
        dead_letters: the topic for records that do not fit or are too large; by default named after the topic (see the
            plan).
        metadata: parts of the record itself that a source has as columns, after those of the schema: ``key``
            (BINARY), ``timestamp`` (TIMESTAMP), ``topic`` (STRING), ``partition`` (INT), ``offset`` (BIGINT),
            ``headers`` (ARRAY<STRUCT<key: STRING, value: BINARY>>). A replay reads the same values.
            ``["key", "timestamp"]`` gives the columns these names; ``{"timestamp": "arrived"}`` gives others, for a
            schema that has such columns itself.
        registry: the schema registry whose ids are in the values, as a URL or a `Registry`. A source with Avro reads
            values of each registered schema as `schema` has them, by Avro's rules; a sink registers `schema`. Without
            `schema`, the subject's newest one is used. A source with JSON only removes the prefix.
        kafka: the cluster of a source, as an address or a `Connection`; None: the application's own. Not for sinks.

    Attributes: topic: the id of the topic, which for another cluster is ``name@cluster``. name: its name there.
    """

    #: A record may be too large for the topic.
    may_refuse: ClassVar[bool] = True
    #: Each record names its epoch.
    remembers: ClassVar[bool] = True

    topic: str
    schema: str | None = None
    key: str | Sequence[str] | None = None
    format: Format = "json"
    starting: Literal["earliest", "latest"] = "earliest"
    dead_letters: str | None = None
    metadata: str | Sequence[str] | Mapping[str, str] = ()
    where: SourceLocation = field(default_factory=caller, compare=False)
    registry: Registry | str | None = None
    kafka: Connection | str | None = field(default=None, kw_only=True)
    #: The topics of a list, in its order; empty if there is one topic. `topic` is then no name of a topic.
    several: tuple[str, ...] = field(default=(), init=False)
    #: The pattern of names, if one was given. `topic` is then its text, and no name of a topic.
    pattern: re.Pattern[str] | None = field(default=None, init=False)

    if TYPE_CHECKING:  # a field has one type, and `topic` takes a list too

        def __init__(
            self,
            topic: str | Sequence[str] | re.Pattern[str],
            schema: str | None = None,
            key: str | Sequence[str] | None = None,
            format: Format = "json",
            starting: Literal["earliest", "latest"] = "earliest",
            dead_letters: str | None = None,
            metadata: str | Sequence[str] | Mapping[str, str] = (),
            where: SourceLocation = ...,
            registry: Registry | str | None = None,
            *,
            kafka: Connection | str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.kafka is not None:
            object.__setattr__(self, "kafka", Connection.of(self.kafka))
        self._take_topics(self.topic)
        if self.dead_letters is not None:
            check_topic_name(self.dead_letters, self.where)
        for name, value, choices in (
            ("format", self.format, ("json", "text", "binary", "avro")),
            ("starting", self.starting, ("earliest", "latest")),
        ):
            if value not in choices:
                known = ", ".join(choices)
                raise OPTION_UNKNOWN_CHOICE.error(where=self.where, option=name, value=value, known=known)
        if self.key is not None and not (self.keys and all(isinstance(k, str) and k for k in self.keys)):
            raise KEY_INVALID.error(where=self.where, key=self.key)
        if not names_parts(self.metadata):
            known = ", ".join(RECORD_PARTS)
            raise OPTION_UNKNOWN_METADATA.error(where=self.where, value=self.metadata, known=known)
        object.__setattr__(self, "registry", Registry.of(self.registry, self.format, self.where))
        if self.format == "avro" and (self.schema or not self.registry):
            object.__setattr__(self, "schema", avro_schema(self.schema, self.topic, self.where))

    def _take_topics(self, given: object) -> None:
        if isinstance(given, re.Pattern) and isinstance(given.pattern, str):
            object.__setattr__(self, "pattern", given)
            object.__setattr__(self, "topic", given.pattern)
            return
        ids = topic_ids(given, self.cluster, self.where)
        object.__setattr__(self, "several", ids if ids[1:] else ())
        object.__setattr__(self, "topic", ", ".join(ids))

    @property
    def each(self) -> tuple[Self, ...]:
        """The declaration of each of its topics alone."""
        return self.of(self.several) or (self,)

    def of(self, names: Sequence[str]) -> tuple[Self, ...]:
        """Return the declaration of each of these topics alone."""
        return tuple(replace(self, topic=name) for name in names)

    @property
    def cluster(self) -> str:
        """The cluster of the topic, as its id names it; empty: the application's own."""
        return self.kafka.label if isinstance(self.kafka, Connection) else ""

    @property
    def name(self) -> str:
        """The name of the topic on its cluster."""
        return topic_name(self.topic)

    @property
    def log(self) -> LogId:
        """The log that it names."""
        return LogId(self.topic)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, in order; empty if there are none."""
        return key_columns(self.key)

    @property
    def record_columns(self) -> dict[str, str]:
        """The columns of a source that hold parts of the record itself, by the name of the part."""
        if isinstance(self.metadata, Mapping):
            return dict(self.metadata)
        parts = (self.metadata,) if isinstance(self.metadata, str) else self.metadata
        return {part: part for part in parts}

    @property
    def schemas(self) -> Registry | None:
        """The registry whose ids are in the values."""
        assert not isinstance(self.registry, str), "made in __post_init__"
        return self.registry

    @property
    def reads_headers(self) -> bool:
        """Whether a source needs the headers of its records."""
        return "headers" in self.record_columns

    @property
    def address(self) -> str:
        """Where results go."""
        return f"topic {self.topic}"

    @property
    def written_as(self) -> str:
        """The form of results: format, schema and key."""
        schema = self.schema if self.format == "avro" or self.registry else None
        digest = "" if schema is None else f" with schema {sha256(schema.encode()).hexdigest()[:16]}"
        digest += " and the ids of a registry" if self.registry else ""
        return f"{'avro' if self.format == 'avro' else 'json'}{digest}, {key_text(self.keys)}"

    @property
    def ddl(self) -> str:
        """The columns of a source as Spark DDL."""
        if self.format == "text":
            return "value STRING"
        if self.format == "binary":
            return "value BINARY"
        return self.schema or ""


@dataclass(frozen=True, slots=True)
class Sql:
    """A database table that batches write, each epoch exactly once.

    One transaction writes an epoch together with a mark that the epoch is complete, so no failure can repeat or lose
    it.

    Args:
        url: as in SQLAlchemy, ``"postgresql://user:password@host/database"`` or ``"sqlite:///stats.db"``.
        table: its name; a missing table is created.
        key: the column(s) that identify a row: a new row replaces the row with the same key. Without a key, rows are
            added.
    """

    #: A null in a key, a time outside the years 1 to 9999 and a NUL character in a text don't fit into a table.
    may_refuse: ClassVar[bool] = True
    #: An epoch and its mark are one transaction.
    remembers: ClassVar[bool] = True

    url: str = field(repr=False)
    table: str
    key: str | Sequence[str] | None = None
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,62}", self.table):
            raise TABLE_NAME_INVALID.error(where=self.where, table=self.table)
        drivers = ("sqlite", "postgresql", "postgresql+psycopg")
        if self.url.partition("://")[0] not in drivers:
            raise DATABASE_UNKNOWN.error(where=self.where, table=self.table)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, in order; empty if rows are added."""
        return key_columns(self.key)

    @property
    def address(self) -> str:
        """Where results go. The database is not named: its URL has secrets."""
        return f"table {self.table}"

    @property
    def written_as(self) -> str:
        """The form of rows."""
        return key_text(self.keys)


@dataclass(frozen=True, slots=True)
class Files:
    """A folder that batches read, each file once, or that batches write, one complete folder of files per epoch.

    A file is read as soon as it has its final name. So a writer first uses a name that starts with ``_`` or ``.``, and
    renames the complete file. The file is read once under its final name, and must not change while it may be read
    again.

    Args:
        path: the folder, on a file system that all machines of the application share.
        format: of the files: ``parquet``, ``json`` (an object per line) or ``csv`` (the first line names the columns).
        schema: the columns of a source as Spark DDL; a row that does not fit becomes a dead letter.
    """

    #: Files have no keys.
    keys: ClassVar[tuple[str, ...]] = ()
    #: A file takes every row.
    may_refuse: ClassVar[bool] = False
    #: A complete epoch has a folder.
    remembers: ClassVar[bool] = True

    path: str
    format: Literal["parquet", "json", "csv"] = "parquet"
    schema: str | None = None
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if self.format not in ("parquet", "json", "csv"):
            raise OPTION_UNKNOWN_FORMAT.error(where=self.where, option="format", value=self.format)

    @property
    def address(self) -> str:
        """Where results go."""
        return f"files in {self.path}"

    @property
    def written_as(self) -> str:
        """The form of results."""
        return self.format


@dataclass(frozen=True, slots=True)
class Console:
    """The terminal, to look at the results of a batch.

    After a failure, an epoch may be printed again, because nobody knows which epochs were already printed. So this sink
    needs ``delivery="repeated"``.

    Args: rows: how many rows of each epoch are printed.
    """

    #: A terminal has no keys.
    keys: ClassVar[tuple[str, ...]] = ()
    #: A terminal takes every row.
    may_refuse: ClassVar[bool] = False
    #: A terminal can't report the epochs that it has shown.
    remembers: ClassVar[bool] = False

    rows: int = 20
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:
            raise OPTION_UNKNOWN_ROWS.error(where=self.where, option="rows", value=self.rows)

    @property
    def address(self) -> str:
        """Where results go."""
        return "the terminal"

    @property
    def written_as(self) -> str:
        """The form of results."""
        return "text"


@dataclass(frozen=True, slots=True)
class EpochTopic:
    """A Kafka topic that a batch writes in one Kafka transaction per epoch. It may be compacted or on another cluster.

    A note in an internal topic beside it, in the same transaction, says which epochs it has. So its records need no
    stamps, which compaction would delete. Consumers must read only committed records.

    Args:
        topic: its name. A missing topic is created.
        key: the column(s) that become the record's key. A compacted topic needs it.
        kafka: the cluster, as an address or a `Connection`; None: the application's own.
        partitions: of a missing topic. compacted: a missing topic gets ``cleanup.policy=compact``.
    """

    #: A record may be too large for the topic. The notes name each epoch.
    may_refuse: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    topic: str
    key: str | Sequence[str] | None = None
    kafka: Connection | str | None = field(default=None, kw_only=True)
    partitions: int = field(default=2, kw_only=True)
    compacted: bool = field(default=False, kw_only=True)
    where: SourceLocation = field(default_factory=caller, compare=False, kw_only=True)
    #: The topic and its key, as the form of a record needs them.
    record: Kafka = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", Kafka(self.topic, key=self.key, where=self.where))
        if self.compacted and not self.keys:
            raise KEY_INVALID.error(where=self.where, key=self.key)
        if type(self.partitions) is not int or self.partitions < 1:
            raise OPTION_UNKNOWN_ROWS.error(where=self.where, option="partitions", value=self.partitions)
        if self.kafka is not None:
            object.__setattr__(self, "kafka", Connection.of(self.kafka))

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, in order; empty if there are none."""
        return self.record.keys

    @property
    def address(self) -> str:
        """Where results go."""
        return self.record.address if self.kafka is None else f"{self.record.address} at {self.cluster.bootstrap}"

    def is_on(self, cluster: Connection | None) -> bool:
        """Return whether the topic is on the application's cluster. Args: cluster: that cluster, if it is known."""
        return self.kafka is None or (cluster is not None and bool(self.cluster.servers & cluster.servers))

    @property
    def cluster(self) -> Connection:
        """The cluster that was named. There must be one."""
        assert isinstance(self.kafka, Connection), "made in __post_init__"
        return self.kafka

    def connection(self, own: Connection) -> Connection:
        """Return the connection to the topic's cluster. Args: own: to the application's cluster."""
        return own if self.kafka is None else self.cluster

    @property
    def written_as(self) -> str:
        """The form of results."""
        return f"{self.record.written_as}, by epochs"


Endpoint = Kafka | EpochTopic | Sql | Files | Delta | Iceberg | Console | OwnSink
