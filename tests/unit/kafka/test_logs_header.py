"""The header's text form, and the fold of a tail compared with theory's simple version."""

import contextlib
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.errors import LogError
from falkirk.kafka_client.header import Header, header_value, split_header, stamp_of
from falkirk.kafka_client.signing import SigningKey, Verifier
from falkirk.kafka_client.tail import OwnRecord, OwnRecords, tail_of
from falkirk.kafka_client.void import Void
from falkirk.theory.channel import Channel
from falkirk.theory.ids import Offset
from falkirk.theory.stamp import Stamp
from tests.theory.model import fold_tail

numbers = st.integers(0, 3)
stamps = st.builds(
    Stamp,
    source=numbers,
    partition=numbers,
    offset=st.integers(0, 2**63 - 1),
    sub=st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple),
)
headers = st.builds(
    Header,
    application=st.text("0123456789abcdef", min_size=8, max_size=8),
    incarnation=st.integers(0, 10_000),
    stamp=stamps,
    state_partition=st.integers(0, 1_000),
)


def own_of(void: Void) -> OwnRecords:
    """Return the filter of a home that has signed no record yet."""
    key = SigningKey(secret=bytes(32), since_birth=False)
    return OwnRecords(Verifier("out", "deadbeef", key), void)


def selected(own: OwnRecords, records: Iterable[tuple[int, int, bytes | None]]) -> list[OwnRecord]:
    found = [(partition, Offset(offset), own.header(partition, offset, value)) for partition, offset, value in records]
    return [(partition, offset, header) for partition, offset, header in found if header is not None]


def channel_of(header: Header, partition: int) -> Channel:
    return Channel(
        source=header.stamp.source,
        source_partition=header.stamp.partition,
        state_partition=header.state_partition,
        output_partition=partition,
    )


def test_the_text_is_application_incarnation_stamp_and_state_partition() -> None:
    header = Header(
        application="deadbeef",
        incarnation=3,
        stamp=Stamp(source=0, partition=2, offset=17, sub=(4, 0)),
        state_partition=5,
    )
    assert header.encode() == b"deadbeef/3/0.2.17.4.0/5"


@given(headers)
def test_a_header_comes_back_from_its_text(header: Header) -> None:
    assert Header.decode(header.encode()) == header


@given(stamps)
def test_a_stamp_comes_back_from_its_text(stamp: Stamp) -> None:
    split = split_header(f"deadbeef/0/{stamp.encode()}/0".encode())
    assert stamp_of(split[2]) == stamp


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"deadbeef",
        b"deadbeef/1/0.0.1/0/0",
        b"deadbee/1/0.0.1/0",
        b"DEADBEEF/1/0.0.1/0",
        b"deadbeef//0.0.1/0",
        b"deadbeef/-1/0.0.1/0",
        b"deadbeef/1/0.0/0",
        b"deadbeef/1/0.0.+1/0",
        b"deadbeef/1/0.0.1_0/0",
        b"deadbeef/1/0..1/0",
        b"deadbeef/1/0.0.1/ 0",
        "deadbeef/1/0.0.٣/0".encode(),
        b"\xff\xfe",
        b"deadbeef/1/0.0.01/0",
        b"deadbeef/01/0.0.1/0",
        b"deadbeef/1/0.0.9223372036854775808/0",
        b"deadbeef/1/0.0." + b"9" * 5_000 + b"/0",
        b"deadbeef/1/0.0.1/" + b"9" * 20,
        b"deadbeef/1/0.0.1/0/" + b"a" * 23,
        b"deadbeef/1/0.0.1/0/" + b"A" * 24,
        b"deadbeef/1/0.0.1/0/" + b"a" * 24 + b"/",
    ],
)
def test_what_is_no_header_is_named(value: bytes) -> None:
    with pytest.raises(LogError) as caught:
        Header.decode(value)
    assert caught.value.condition == "HEADER_MALFORMED"
    assert caught.value.parameters["value"] == value


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(value: bytes) -> None:
    with contextlib.suppress(LogError):
        Header.decode(value)


def test_our_header_is_found_among_others() -> None:
    assert header_value([("trace", b"1"), ("falkirk", b"2")]) == b"2"
    assert header_value([("trace", b"1")]) is None
    assert header_value([("falkirk", None)]) is None
    assert header_value(None) is None


@given(st.lists(st.tuples(headers, numbers), max_size=30))
def test_the_fold_agrees_with_theory(records: list[tuple[Header, int]]) -> None:
    ours = [
        Header(
            application="deadbeef",
            incarnation=h.incarnation,
            stamp=h.stamp,
            state_partition=h.state_partition % 2,
        )
        for h, _ in records
    ]
    places = [partition for _, (_, partition) in zip(ours, records, strict=True)]
    values = [(p, offset, h.encode()) for offset, (p, h) in enumerate(zip(places, ours, strict=True))]
    pairs = [(channel_of(header, partition), header.stamp) for header, partition in zip(ours, places, strict=True)]
    tail, (released, regressions) = tail_of(selected(own_of(Void()), values)), fold_tail(pairs)
    assert tail.released == released
    assert set(tail.released_set) == set(pairs)
    assert tail.regression_count == len(regressions)
    assert tail.regression == next(iter(regressions), None)
    assert sum(tail.incarnations.values()) == len(records)


def test_void_and_foreign_records_are_counted_and_release_nothing() -> None:
    own = own_of(Void([(0, 1, 2)]))
    values = [b"deadbeef/0/0.0.1/0", b"deadbeef/0/0.0.9/0", b"cafecafe/0/0.0.9/0", b"deadbeef", None]
    found = selected(own, [(0, offset, value) for offset, value in enumerate(values)])
    assert ([offset for _, offset, _ in found], own.foreign.count) == ([0], 3)
    assert own.foreign.first is not None
    assert (own.foreign.first.partition, own.foreign.first.offset) == (0, 2)
    assert [stamp.offset for stamp in tail_of(found).released.greatest.values()] == [1]


def test_void_ranges_hold_their_first_offset_and_not_their_end() -> None:
    own = own_of(Void([(1, 0, 100), (0, 5, 7), (0, 1, 3)]))
    written = [(p, offset, f"deadbeef/0/0.0.{offset}/0".encode()) for offset in range(9) for p in (0, 2)]
    found = selected(own, written)
    tail = tail_of(found)
    kept = sorted(stamp.offset for channel, stamp in tail.released_set if channel.output_partition == 0)
    assert kept == [0, 3, 4, 7, 8]
    assert (len(written) - len(found), own.foreign.count) == (4, 0)
