"""Avro values: decodes values in Avro's binary encoding without Spark, for commands that show records.

Values come from others, so a value of a few bytes must not take much time or memory. The encoding is that of the
specification of Avro 1.12, section "Binary Encoding".
"""

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

#: So many parts of a value (fields, items, branches of unions) are decoded at most, and some more for each byte: a part
#: may take no byte at all, and a schema may repeat its records so that a value has billions of such parts.
_PARTS_MAX, _PARTS_PER_BYTE = 100_000, 8
#: Spark writes decimals of at most 38 digits. A text has all digits of the scale, however short the value is.
_SCALE_MAX = 1_000
_VARINT_BYTES = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode(schema: Any, value: bytes) -> Any:
    """Return a value as JSON has it. Dates, times and decimals are texts, and bytes are Base64.

    Args: schema: of the value's writer, as parsed JSON.
    Raises: ValueError: the value or the schema does not fit.
    """
    try:
        decoder = _Decoder(value)
        found = decoder.read(schema, "")
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError, struct.error, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if decoder.place != len(value):
        raise ValueError(f"{len(value) - decoder.place} bytes follow the value")
    return found


class _Decoder:
    """Reads one value. Attributes: place: the number of bytes that are read."""

    def __init__(self, value: bytes) -> None:
        self._value, self.place = value, 0
        self._parts_left = _PARTS_MAX + _PARTS_PER_BYTE * len(value)
        #: The named types so far, with the namespace in which each is declared.
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}

    def read(self, schema: Any, space: str) -> Any:
        """Return the next value. Args: space: the namespace around the schema."""
        self._parts_left -= 1
        if self._parts_left < 0:
            raise ValueError("the value has too many parts")
        if isinstance(schema, list):
            return self.read(schema[self._index(len(schema))], space)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema](self)
            named, space = self._named.get(f"{space}.{schema}") or self._named[schema]
            return self._read_complex(named, space)
        kind = schema["type"]
        if isinstance(kind, list | dict):
            return self.read(kind, space)
        if "name" in schema and kind in _NAMED:
            name = schema["name"] if "." in schema["name"] else f"{schema.get('namespace', space)}.{schema['name']}"
            space = name.rpartition(".")[0]
            self._named[name.lstrip(".")] = self._named[name] = schema, space
        return self._read_complex(schema, space)

    def _read_complex(self, schema: Mapping[str, Any], space: str) -> Any:
        kind = schema["type"]
        if kind == "record":
            return {field["name"]: self.read(field["type"], space) for field in schema["fields"]}
        if kind == "enum":
            return schema["symbols"][self._index(len(schema["symbols"]))]
        if kind == "array":
            return self._blocks(lambda: self.read(schema["items"], space))
        if kind == "map":
            return dict(self._blocks(lambda: (self.text(), self.read(schema["values"], space))))
        raw = self.take(schema["size"]) if kind == "fixed" else None
        return self._logical(schema, raw)

    def _logical(self, schema: Mapping[str, Any], fixed: bytes | None) -> Any:
        """Return a value of a type that another one represents, or a value that is no such one."""
        logical, kind = schema.get("logicalType"), schema["type"]
        if fixed is None and kind != "bytes":
            found = self.read(kind, "")
            return _LOGICAL[logical](found) if logical in _LOGICAL else found
        raw = self.take(self.number()) if fixed is None else fixed
        if logical == "decimal":
            return _decimal(int.from_bytes(raw, "big", signed=True), schema.get("scale", 0))
        return _base64(raw)

    def _blocks(self, item: Callable[[], Any]) -> list[Any]:
        found = []
        while (count := self.number()) != 0:
            if count < 0:  # then the size of the block in bytes follows
                self.number()
            found += [item() for _ in range(abs(count))]
        return found

    def _index(self, size: int) -> int:
        index = self.number()
        if not 0 <= index < size:
            raise ValueError(f"there is no choice {index}")
        return index

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if not 0 <= size <= len(self._value) - self.place:
            raise ValueError("the value ends too early")
        self.place += size
        return self._value[self.place - size : self.place]

    def number(self) -> int:
        """Return the next integer: seven bits per byte, the sign in the last bit."""
        found = 0
        for place in range(_VARINT_BYTES):
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise ValueError("an integer of more than 64 bits")

    def text(self) -> str:
        """Return the next text."""
        return self.take(self.number()).decode()

    def flag(self) -> bool:
        """Return the next boolean."""
        return {b"\0": False, b"\1": True}[self.take(1)]

    def real(self, form: str) -> float:
        """Return the next number with a fraction. Args: form: as `struct` names it."""
        return float(struct.unpack(form, self.take(struct.calcsize(form)))[0])


def _decimal(unscaled: int, scale: int) -> str:
    """Return all digits of a decimal. `Decimal.scaleb` would round it to the 28 digits of the context."""
    if not 0 <= scale <= _SCALE_MAX:
        raise ValueError(f"a decimal of scale {scale}")
    digits = tuple(map(int, str(abs(unscaled))))  # more than 4,300 digits are a ValueError of Python
    return format(Decimal((int(unscaled < 0), digits, -scale)), "f")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _time(unit_us: int, *, zone: str) -> Callable[[int], str]:
    return lambda count: (_EPOCH + timedelta(microseconds=count * unit_us)).replace(tzinfo=None).isoformat() + zone


_NAMED = ("record", "enum", "fixed")
_PRIMITIVES: Mapping[str, Callable[[_Decoder], Any]] = {
    "null": lambda d: None, "boolean": _Decoder.flag, "int": _Decoder.number, "long": _Decoder.number,
    "float": lambda d: d.real("<f"), "double": lambda d: d.real("<d"), "string": _Decoder.text,
    "bytes": lambda d: _base64(d.take(d.number())),
}  # fmt: skip
_LOGICAL: Mapping[Any, Callable[[Any], Any]] = {
    "date": lambda days: (date(1970, 1, 1) + timedelta(days)).isoformat(),
    "timestamp-millis": _time(1_000, zone="Z"), "timestamp-micros": _time(1, zone="Z"),
    "local-timestamp-millis": _time(1_000, zone=""), "local-timestamp-micros": _time(1, zone=""),
}  # fmt: skip
