"""RowCodec: rows as bytes, as `RowCodec.java` writes and reads them, for Python functions that run record by record.

Both sides know the schema, so the bytes have only values. For each column in turn, one byte says if there is a value,
and the value follows. Numbers are big-endian. Texts, bytes, decimals, arrays and maps start with their size.
The values in Python are those of micro-batches (`pyarrow.Table.to_pylist`): a struct is a dict, and a map is a list of
pairs.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

from pyspark.sql import types as T

_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_NAIVE_EPOCH, _MICROSECOND = _EPOCH.replace(tzinfo=None), timedelta(microseconds=1)
_SIZE = struct.Struct(">i")
#: Spark's decimals have at most 38 digits. A rounded digit is an error.
_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation])
_NUMBERS: dict[type[T.DataType], struct.Struct] = {
    T.BooleanType: struct.Struct(">?"), T.ByteType: struct.Struct(">b"), T.ShortType: struct.Struct(">h"),
    T.IntegerType: struct.Struct(">i"), T.LongType: struct.Struct(">q"), T.FloatType: struct.Struct(">f"),
    T.DoubleType: struct.Struct(">d"),
}  # fmt: skip
Encode = Callable[[Any, bytearray], None]
Decode = Callable[["_Reader"], Any]
Beyond = Callable[[T.DataType, int], str]
"""Returns the text of a time that Python can't represent, given as Spark's number."""


class _Reader:
    """Reads a row from its start to its end."""

    __slots__ = ("_at", "_value")

    def __init__(self, value: bytes) -> None:
        self._value, self._at = value, 0

    def read(self, size: int) -> bytes:
        taken = self._value[self._at : self._at + size]
        if size < 0 or len(taken) < size:
            raise ValueError(f"{self._value[:50]!r} is not a row: it ends too early")
        self._at += size
        return taken

    def size(self) -> int:
        size: int = _SIZE.unpack(self.read(_SIZE.size))[0]
        return size

    def end(self) -> None:
        if self._at < len(self._value):
            raise ValueError(f"{self._value[:50]!r} is not a row: it has bytes after its end")


@dataclass(frozen=True, slots=True)
class _Codec:
    encode: Encode
    decode: Decode


@dataclass(frozen=True, slots=True)
class _Python:
    """How values look in Python: see `RowCodec`."""

    zone: tzinfo
    beyond: Beyond | None

    def text(self, kind: T.DataType, number: int) -> str:
        if self.beyond is None:
            raise OverflowError(f"Python has no {kind.simpleString()} {number}")
        return self.beyond(kind, number)


class RowCodec:
    """Encodes and decodes the rows of a schema.

    Args: zone: the time zone of timestamps in Python. beyond: to show rows instead of computing with them: values that
        Python can't represent become texts, and a text that is not UTF-8 is decoded as far as possible.
    Raises: TypeError: a column has a type that the codec does not know.
    """

    def __init__(self, schema: T.StructType, zone: tzinfo = UTC, beyond: Beyond | None = None) -> None:
        self._row = _struct(schema, _Python(zone, beyond))

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Return the bytes of a row. Raises: AttributeError, KeyError, TypeError, ValueError, struct.error."""
        out = bytearray()
        self._row.encode(row, out)
        return bytes(out)

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the row with these bytes.

        Raises: ValueError: the bytes are not a row, or a text is not UTF-8. OverflowError: Python can't represent a
            time.
        """
        reader = _Reader(value)
        row: dict[str, Any] = self._row.decode(reader)
        reader.end()
        return row


def _codec(kind: T.DataType, python: _Python) -> _Codec:
    number = _NUMBERS.get(type(kind))
    if number is not None:
        return _number(number)
    match kind:
        case T.StringType():
            errors = "strict" if python.beyond is None else "replace"
            return _sized(lambda value: value.encode(), lambda value: value.decode(errors=errors))
        case T.BinaryType():
            return _sized(bytes, bytes)
        case T.DecimalType():
            return _decimal(kind)
        case T.DateType():
            return _date(kind, python)
        case T.TimestampType():
            return _time(kind, _EPOCH, python)
        case T.TimestampNTZType():
            return _time(kind, _NAIVE_EPOCH, python)
        case T.ArrayType():
            return _array(_nullable(_codec(kind.elementType, python)))
        case T.MapType():
            return _array(_pair(_codec(kind.keyType, python), _nullable(_codec(kind.valueType, python))))
        case T.StructType():
            return _struct(kind, python)
    raise TypeError(f"{kind.simpleString()} is not a type of the codec")


def _number(form: struct.Struct) -> _Codec:
    return _Codec(
        lambda value, out: out.extend(form.pack(value)), lambda reader: form.unpack(reader.read(form.size))[0]
    )


def _sized(to_bytes: Callable[[Any], bytes], from_bytes: Callable[[bytes], Any]) -> _Codec:
    def encode(value: Any, out: bytearray) -> None:
        plain = to_bytes(value)
        out += _SIZE.pack(len(plain))
        out += plain

    return _Codec(encode, lambda reader: from_bytes(reader.read(reader.size())))


def _decimal(kind: T.DecimalType) -> _Codec:
    """Decimals are their unscaled value. The scale is that of the type."""

    def to_bytes(value: Decimal) -> bytes:
        try:
            unscaled = value.scaleb(kind.scale, _EXACT)
            number = int(unscaled)
        except (DecimalException, OverflowError, ValueError):
            raise ValueError(f"{value} does not fit {kind.simpleString()}") from None
        if number != unscaled or abs(number) >= 10**kind.precision:
            raise ValueError(f"{value} does not fit {kind.simpleString()}")
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    def from_bytes(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not value or abs(number) >= 10**kind.precision:
            raise ValueError(f"{value!r} is not a {kind.simpleString()}")
        return Decimal(number).scaleb(-kind.scale, _EXACT)

    return _sized(to_bytes, from_bytes)


def _date(kind: T.DataType, python: _Python) -> _Codec:
    days = _number(struct.Struct(">i"))

    def decode(reader: _Reader) -> date | str:
        number = days.decode(reader)
        try:
            return date.fromordinal(number + _EPOCH_DAY)
        except (OverflowError, ValueError):
            return python.text(kind, number)

    return _Codec(lambda value, out: days.encode(value.toordinal() - _EPOCH_DAY, out), decode)


def _time(kind: T.DataType, epoch: datetime, python: _Python) -> _Codec:
    micros, has_zone = _number(struct.Struct(">q")), epoch.tzinfo is not None

    def decode(reader: _Reader) -> datetime | str:
        number = micros.decode(reader)
        try:
            value = epoch + timedelta(microseconds=number)
            return value.astimezone(python.zone) if has_zone else value
        except OverflowError:
            return python.text(kind, number)

    return _Codec(lambda value, out: micros.encode((value - epoch) // _MICROSECOND, out), decode)


def _nullable(inner: _Codec) -> _Codec:
    def encode(value: Any, out: bytearray) -> None:
        out.append(value is not None)
        if value is not None:
            inner.encode(value, out)

    def decode(reader: _Reader) -> Any:
        known = reader.read(1)
        if known not in (b"\0", b"\1"):
            raise ValueError(f"{known!r} does not tell whether there is a value")
        return inner.decode(reader) if known == b"\1" else None

    return _Codec(encode, decode)


def _array(element: _Codec) -> _Codec:
    def encode(values: Any, out: bytearray) -> None:
        out += _SIZE.pack(len(values))
        for value in values:
            element.encode(value, out)

    def decode(reader: _Reader) -> list[Any]:
        size = reader.size()
        if size < 0:
            raise ValueError(f"{size} is not a number of elements")
        return [element.decode(reader) for _ in range(size)]

    return _Codec(encode, decode)


def _pair(key: _Codec, value: _Codec) -> _Codec:
    def encode(pair: Any, out: bytearray) -> None:
        key.encode(pair[0], out)
        value.encode(pair[1], out)

    return _Codec(encode, lambda reader: (key.decode(reader), value.decode(reader)))


def _struct(schema: T.StructType, python: _Python) -> _Codec:
    columns = [(field.name, _nullable(_codec(field.dataType, python))) for field in schema.fields]

    def encode(row: Any, out: bytearray) -> None:
        for name, column in columns:
            column.encode(row[name], out)

    return _Codec(encode, lambda reader: {name: column.decode(reader) for name, column in columns})
