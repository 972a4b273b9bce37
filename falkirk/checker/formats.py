"""Formats: reads all rows of a file, or refuses the file.

JSON lines and CSV may be compressed. A file that ends too early, has unclear columns, or is written in another encoding
is refused: rows that were not understood can't be compared.
"""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from falkirk.checker.run import Values
from falkirk.checker.written import plain_number

BATCH_ROWS = 5000
#: The name of the only field of a CSV line that does not have exactly the file's columns.
NO_ROW = "(not a row of the columns)"
#: The exceptions raised when a file is damaged or does not have the format that its name says.
DECODING_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_BOM = b"\xef\xbb\xbf"
_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|\Z)')


def _zstd(path: Path) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")


_OPEN: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstd}
_TEXTS = (".jsonl", ".ndjson", ".json", ".csv")
#: The suffixes of files of rows.
SUFFIXES = (*_TEXTS, ".parquet")
COMPRESSED = tuple(_OPEN)


def format_of(name: str) -> str | None:
    """Return the suffix in `SUFFIXES` that says how a file of this name is read; None if it is not read."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] in _OPEN:
        return suffixes[-2] if len(suffixes) > 1 and suffixes[-2] in _TEXTS else None
    return suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a text with their ends, without the byte order mark that some writers put at the beginning."""
    opened: Any = _OPEN.get(path.suffix.lower(), lambda plain: plain.open("rb"))
    with closing(opened(path)) as file:
        first, rest = True, b""
        while block := file.read(1 << 16):
            if first:
                first, block = False, block.removeprefix(_BOM)
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield line + b"\n"
        if rest:
            yield rest


def json_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that are not empty, without their ends."""
    for line in _lines(path):
        if (text := line.rstrip(b"\r\n")) and text.strip():
            yield text


def csv_rows(path: Path, *, decimal: bool, texts: frozenset[str]) -> Iterator[Values]:
    """Yield the rows of a file with a header.

    A field is a number if it is written exactly as the number is written. Otherwise it is a text, or null if it is
    empty.

    Args: decimal: whether fractions are decimals. texts: columns whose fields stay texts.
    Raises: ValueError: the header does not name the columns, or the file ends inside quotes.
    """
    records = _records(path)
    header = [name or "" for name in _fields(next(records, "")) or [""]]
    if header == [""]:
        return
    if len(set(header)) < len(header) or not all(header) or any(plain_number(name) is not None for name in header):
        raise ValueError(f"its first line does not name the columns, each with another name: {','.join(header)}")
    for record in records:
        fields = _fields(record)
        if fields is None or len(fields) != len(header):
            yield {NO_ROW: record.encode()}
            continue
        if fields == header:
            raise ValueError("its first line is repeated as a row, so it may be a row and not a header")
        yield {
            name: field if field is None or name in texts else _value(field, decimal)
            for name, field in zip(header, fields, strict=True)
        }


def _value(field: str, decimal: bool) -> object:
    number = plain_number(field, decimal=decimal)
    return field if number is None else number


def _records(path: Path) -> Iterator[str]:
    """Yield the records without their ends. A record extends over several lines while a quote is open."""
    waiting: list[str] = []
    quotes = 0
    for line in _lines(path):
        text = line.decode("utf-8")
        quotes += text.count('"')
        waiting.append(text)
        if quotes % 2 == 0:
            record = "".join(waiting).removesuffix("\n").removesuffix("\r")
            waiting, quotes = [], 0
            if record:
                yield record
    if waiting:
        raise ValueError("it ends inside quotes")


def _fields(record: str) -> list[str | None] | None:
    """Return the fields; None if a quote is misplaced. A field without any character is null."""
    if '"' not in record:
        return [field or None for field in record.split(",")]
    fields: list[str | None] = []
    at = 0
    while True:
        field = _FIELD.match(record, at)
        if field is None:
            return None
        quoted, bare, end = field.groups()
        fields.append(bare or None if quoted is None else quoted.replace('""', '"'))
        if not end:
            return fields
        at = field.end()


def parquet_rows(path: Path, plain: Callable[[object], object]) -> Iterator[Values]:
    """Yield the rows of a file. Raises: ValueError: two columns have the same name."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            schema = file.schema_arrow
            if len(set(schema.names)) < len(schema.names):
                raise ValueError("two of its columns have the same name")
            maps = _maps(schema)
            for batch in file.iter_batches(BATCH_ROWS):
                for row in batch.to_pylist():
                    yield {name: plain(_map(value) if name in maps else value) for name, value in row.items()}
    except pa.ArrowException as cause:
        raise ValueError(str(cause)) from cause


def _maps(schema: Any) -> frozenset[str]:
    return frozenset(field.name for field in schema if str(field.type).startswith("map<"))


def _map(value: object) -> object:
    """Return a map in JSON's form, an object, if its keys are distinct texts; anything else unchanged."""
    if not isinstance(value, list):
        return value
    fields: Mapping[object, object] = dict(value)
    return fields if len(fields) == len(value) and all(isinstance(key, str) for key in fields) else value
