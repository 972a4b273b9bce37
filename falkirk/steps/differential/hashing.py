"""Hashing: computes Spark's hash of a key, and its partition, without Spark.

If one task computes an epoch alone, the tasks of later Spark jobs must find its rows in the right partitions. The
functions are those of `xxhash64` (XXH64, seed 42, one column after the other) and of `repartition` (Murmur3, 32 bits).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Unsigned = npt.NDArray[np.uint64]

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip


def is_hashed(of: pa.DataType) -> bool:
    """Whether this module can compute the hash of a type."""
    return bool(
        pa.types.is_integer(of) or pa.types.is_boolean(of) or pa.types.is_date32(of) or pa.types.is_timestamp(of)
        or pa.types.is_string(of) or pa.types.is_float64(of)
    )  # fmt: skip


def hash_of(columns: Sequence[pa.ChunkedArray], rows: int) -> npt.NDArray[np.int64]:
    """Return the hash of each row of these columns; without columns, the hash of the number 0."""
    found = np.full(rows, _SEED, dtype=np.uint64)
    with np.errstate(over="ignore"):
        if not columns:
            found = _of_four(np.zeros(rows, dtype=np.uint32), found)
        for column in columns:
            array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            there = array.is_valid().to_numpy(zero_copy_only=False)
            found = np.where(there, _hashed(array, found), found)
    return found.view(np.int64)


def partition_of_hash(hashes: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int64]:
    """Return the partition of each hash. Args: partitions: their number."""
    words = hashes.view(np.uint64)
    with np.errstate(over="ignore"):
        found = np.full(len(hashes), _SEED, dtype=np.uint32)
        for word in (words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)):
            mixed = _turned32(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            found = _turned32(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found ^= np.uint32(8)
        found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        found ^= found >> np.uint32(16)
    return found.view(np.int32).astype(np.int64) % partitions


def _hashed(array: pa.Array, seed: Unsigned) -> Unsigned:
    if pa.types.is_string(array.type):
        return _of_texts(array, seed)
    if pa.types.is_float64(array.type):
        numbers = array.fill_null(0.0).to_numpy() + 0.0  # as Spark does: -0.0 is 0.0, and there is one NaN
        return _of_eight(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64), seed)
    if pa.types.is_int64(array.type) or pa.types.is_timestamp(array.type):
        return _of_eight(array.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64), seed)
    numbers = array.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    return _of_four(numbers.astype(np.int32).view(np.uint32), seed)


def _of_four(words: npt.NDArray[np.uint32], seed: Unsigned) -> Unsigned:
    found = seed + _P5 + np.uint64(4)
    return _finished(_with_four(words, found))


def _of_eight(words: Unsigned, seed: Unsigned) -> Unsigned:
    return _finished(_with_eight(words, seed + _P5 + np.uint64(8)))


def _of_texts(array: pa.Array, seed: Unsigned) -> Unsigned:
    """Return the hashes of texts. Texts of the same length are hashed together."""
    binary = array.cast(pa.binary()).fill_null(b"")
    offsets = np.frombuffer(binary.buffers()[1], dtype=np.int32, count=len(binary) + 1, offset=binary.offset * 4)
    content = np.frombuffer(binary.buffers()[2] or b"", dtype=np.uint8)
    lengths, found = np.diff(offsets), seed.copy()
    for length in np.unique(lengths):
        which = np.flatnonzero(lengths == length)
        places = offsets[which][:, None] + np.arange(length, dtype=np.int32)[None, :]
        found[which] = _of_bytes(content[places], seed[which])
    return found


def _of_bytes(texts: npt.NDArray[np.uint8], seed: Unsigned) -> Unsigned:
    """Return the hash of each row of a matrix of bytes."""
    length, at = texts.shape[1], 0
    if length >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
        while at + 32 <= length:
            for i, lane in enumerate(lanes):
                lanes[i] = _round(lane, _words(texts, at + 8 * i, np.uint64))
            at += 32
        found = sum((_turned(lane, t) for lane, t in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros_like(seed))
        for lane in lanes:
            found = (found ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    else:
        found = seed + _P5
    found = found + np.uint64(length)
    while at + 8 <= length:
        found, at = _with_eight(_words(texts, at, np.uint64), found), at + 8
    if at + 4 <= length:
        found, at = _with_four(_words(texts, at, np.uint32), found), at + 4
    for one in range(at, length):
        found = _turned(found ^ (texts[:, one].astype(np.uint64) * _P5), 11) * _P1
    return _finished(found)


def _words(texts: npt.NDArray[np.uint8], at: int, of: Any) -> Any:
    size = np.dtype(of).itemsize
    return np.ascontiguousarray(texts[:, at : at + size]).view(of).reshape(len(texts))


def _round(lane: Unsigned, words: Unsigned) -> Unsigned:
    return _turned(lane + words * _P2, 31) * _P1


def _with_eight(words: Unsigned, found: Unsigned) -> Unsigned:
    return _turned(found ^ _round(np.zeros_like(found), words), 27) * _P1 + _P4


def _with_four(words: npt.NDArray[np.uint32], found: Unsigned) -> Unsigned:
    return _turned(found ^ (words.astype(np.uint64) * _P1), 23) * _P2 + _P3


def _finished(found: Unsigned) -> Unsigned:
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return found ^ (found >> np.uint64(32))


def _turned(words: Unsigned, by: int) -> Unsigned:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _turned32(words: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
