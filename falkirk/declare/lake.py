"""Lake: tables of Delta Lake and Apache Iceberg as targets, as declared by the user.

It imports neither `deltalake` nor `pyiceberg`: declarations need no packages, and planning says which one is missing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import ClassVar

from falkirk.errors.conditions.lake import (
    CATALOG_INVALID,
    KEY_INVALID_PARTITION,
    TABLE_NAME_INVALID_ICEBERG,
    TABLE_PATH_INVALID,
)
from falkirk.errors.location import SourceLocation, caller
from falkirk.errors.redaction import redact_urls

#: The properties that say which catalog is meant. Others are about the connection or the user.
_WHICH_CATALOG = ("type", "uri", "warehouse", "py-catalog-impl")


class _Lake:
    """The properties that all lake tables share."""

    __slots__ = ()

    #: A lake table has no keys: rows are added.
    keys: ClassVar[tuple[str, ...]] = ()
    #: Each commit names its epoch.
    remembers: ClassVar[bool] = True

    partition_by: str | Sequence[str]

    @property
    def may_refuse(self) -> bool:
        """Whether the table may refuse rows: no partition can have some values."""
        return bool(self.partition_columns)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned, in order."""
        return tuple(self.partition_by)


@dataclass(frozen=True, slots=True)
class Delta(_Lake):
    """A Delta Lake table that batches append to, each epoch exactly once.

    One commit of the table adds the files of an epoch, together with the number of the epoch as the version of an
    application transaction. It needs the package ``deltalake`` (``falkirk[lake]``).

    Args:
        path: the folder of the table, on a file system that all machines of the application share. A missing table is
            created.
        partition_by: the column(s) by which the table is partitioned: texts, whole numbers, dates or booleans. Delta
            Lake has no empty texts there, so readers find null instead. A row with a date outside the years 1 to 9999
            becomes a dead letter.
    """

    path: str
    partition_by: str | Sequence[str] = ()
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path.strip() or re.match(r"[A-Za-z][\w+.-]*:", self.path):
            raise TABLE_PATH_INVALID.error(where=self.where, path=redact_urls(str(self.path)))
        object.__setattr__(self, "partition_by", _columns(self.partition_by, self.where))

    @property
    def address(self) -> str:
        """Where results go."""
        return f"Delta table {self.path}"

    @property
    def written_as(self) -> str:
        """The form of rows."""
        return _form("delta", self.partition_columns)


@dataclass(frozen=True, slots=True)
class Iceberg(_Lake):
    """An Apache Iceberg table that batches append to, each epoch exactly once.

    One transaction of the table adds the files of an epoch and stores the number of the epoch. It needs the package
    ``pyiceberg`` (``falkirk[lake]``).

    Args:
        table: its namespace and name, ``"shop.sales"``. A missing table is created. Its location is a folder on a file
            system that all machines of the application share.
        catalog: the name of its catalog, as in ``.pyiceberg.yaml``.
        properties: of the catalog, as for ``pyiceberg.catalog.load_catalog``, such as
            ``{"type": "sql", "uri": "sqlite:////lake/catalog.db", "warehouse": "/lake"}``.
        partition_by: the column(s) by whose values the table is partitioned: texts, whole numbers, dates or booleans. A
            row with a date outside the years 1 to 9999, or a text of more than 2,000 bytes, becomes a dead letter.
    """

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    partition_by: str | Sequence[str] = ()
    where: SourceLocation = field(default_factory=caller, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.table, str) or not re.fullmatch(r"[\w-]{1,100}(\.[\w-]{1,100})+", self.table):
            raise TABLE_NAME_INVALID_ICEBERG.error(where=self.where, table=self.table)
        pairs = self.properties.items() if isinstance(self.properties, Mapping) else [("", None)]
        if not isinstance(self.catalog, str) or not self.catalog:
            raise CATALOG_INVALID.error(where=self.where, option="catalog")
        if not all(isinstance(name, str) and isinstance(value, str) for name, value in pairs):
            raise CATALOG_INVALID.error(where=self.where, option="properties")
        object.__setattr__(self, "partition_by", _columns(self.partition_by, self.where))

    @property
    def address(self) -> str:
        """Where results go. The catalog is named, but not its properties: they may have secrets."""
        return f"Iceberg table {self.catalog}.{self.table}"

    @property
    def written_as(self) -> str:
        """The form of rows, and a digest of the catalog's address."""
        which = [redact_urls(self.properties.get(name, "")) for name in _WHICH_CATALOG]
        digest = sha256(repr((self.catalog, which)).encode()).hexdigest()[:16]
        return f"{_form('iceberg', self.partition_columns)} of catalog {digest}"


def _columns(given: object, where: SourceLocation) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (None,)
    texts = [name for name in names if isinstance(name, str) and name]
    if len(texts) != len(names) or len(set(texts)) < len(texts):
        raise KEY_INVALID_PARTITION.error(where=where, columns=given)
    return tuple(texts)


def _form(kind: str, columns: tuple[str, ...]) -> str:
    return f"{kind}, partitioned by {', '.join(columns)}" if columns else kind
