"""Copies: copies files in parts and measures them, so that a reader can tell a whole copy from any other content."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from falkirk.platform.durable import damaged, whole_file

_PART_BYTES = 1 << 20


class Readable(Protocol):
    """An open file, of Python or of pyarrow."""

    def read(self, size: int, /) -> bytes:
        """Return at most this many of the next bytes; none at the end."""


def copy_parts(source: Readable, write: Callable[[bytes], object]) -> tuple[int, int]:
    """Copy an open file in parts. Returns: the number of bytes, and their CRC-32. Args: write: takes each part."""
    size = checksum = 0
    while part := bytes(source.read(_PART_BYTES)):
        write(part)
        size, checksum = size + len(part), zlib.crc32(part, checksum)
    return size, checksum


def measure(file: Path) -> tuple[int, int]:
    """Return the size of a file, and its CRC-32."""
    with open(file, "rb") as opened:
        return copy_parts(opened, lambda part: None)


def has_content(file: Path, size: int, checksum: int | None) -> bool:
    """Return whether a file is there and has a size and a CRC-32. If the CRC-32 is not known (None), nobody can say."""
    try:
        return checksum is not None and file.stat().st_size == size and measure(file) == (size, checksum)
    except FileNotFoundError:
        return False


def write_copy(file: Path, copy: Callable[[BinaryIO], tuple[int, int]], *, durable: bool) -> tuple[int, int]:
    """Write a file, with its folders, under its name only once it is whole. Returns: what `copy` returned.

    Args: copy: writes the content and measures it. If it raises, nothing is written. durable: as of `whole_file`.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file, durable=durable) as opened:
        return copy(opened)


def require_content(found: tuple[int, int], wanted: tuple[int, int | None], where: object) -> None:
    """Refuse a copy with another content.

    Args: found, wanted: size and CRC-32; None: only the size is compared. Raises: HomeError: `STATE_DAMAGED`.
    """
    if found[0] != wanted[0]:
        raise damaged(f"a file has {found[0]} bytes and was written with {wanted[0]}.", where, file=str(where))
    if wanted[1] not in (None, found[1]):
        raise damaged("a file does not have the content that was written.", where, file=str(where))
