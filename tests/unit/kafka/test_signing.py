"""Signed headers: a record is accepted only if the home wrote it, with this content, at this place."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falkirk.kafka_client.signing import (
    MALFORMED,
    NO_HEADER,
    OF_ANOTHER,
    UNEXPLAINED,
    UNKNOWN_TAG,
    UNSIGNED,
    WRONG_TAG,
    RejectedHeader,
    SigningKey,
    VerifiedHeader,
    Verifier,
    explained_by,
    tag_of,
)
from falkirk.kafka_client.tail import OwnRecords, tail_of
from falkirk.kafka_client.void import Void
from falkirk.recovery.decision_store import RegionRecord, Store
from falkirk.recovery.ownership.folder import open_home

KEY = SigningKey(secret=bytes(range(32)), since_birth=True)
TEXT = b"deadbeef/3/0.1.17/2/"
keys, values = st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=40)


def signed(
    text: bytes = TEXT, *, topic: str = "out", partition: int = 1, key: bytes | None = b"k", value: bytes | None = b"v"
) -> bytes:
    """Return a header as the home writes it."""
    incarnation = text.split(b"/")[1].decode()
    return text + tag_of(KEY.of(topic, incarnation), text, partition, key, value).encode()


def verified(
    header: bytes | None, *, partition: int = 1, key: bytes | None = b"k", value: bytes | None = b"v"
) -> VerifiedHeader | RejectedHeader:
    return Verifier("out", "deadbeef", KEY).verify(partition, 40, header, key, value)


def test_what_the_home_wrote_is_believed() -> None:
    assert verified(signed()) == VerifiedHeader(3, (0, 1, 17), "2", True)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (None, NO_HEADER),
        (b"", MALFORMED),
        (b"deadbeef/3/0.1." + b"9" * 5_000 + b"/2", MALFORMED),
        (TEXT[:-1], UNSIGNED),
        (b"cafecafe/3/0.1.17/2", OF_ANOTHER),
        (TEXT + b"0" * 24, WRONG_TAG),
        (signed().replace(b"0.1.17", b"0.1.999999999"), WRONG_TAG),
        (signed().replace(b"/3/", b"/4/"), WRONG_TAG),
        (signed(topic="hop"), WRONG_TAG),
        (signed(partition=0), WRONG_TAG),
    ],
)
def test_what_somebody_else_wrote_is_not(header: bytes | None, reason: RejectedHeader) -> None:
    assert verified(header) is reason


@given(st.none() | st.binary(max_size=60))
def test_no_bytes_are_believed_and_none_fail(header: bytes | None) -> None:
    assert isinstance(verified(header), RejectedHeader)


@given(keys, values, keys, values)
@example(b"ab", b"c", b"a", b"bc")
@example(None, b"c", b"", b"c")
def test_a_header_does_not_serve_for_another_record(
    key: bytes | None, value: bytes | None, other_key: bytes | None, other_value: bytes | None
) -> None:
    found = verified(signed(key=key, value=value), key=other_key, value=other_value)
    is_same = (key, value or b"") == (other_key, other_value or b"")
    assert isinstance(found, VerifiedHeader) is is_same


@given(st.integers(0, 2**63 - 1), st.sampled_from([b"0", b"a", b"/"]))
def test_a_forged_stamp_reaches_no_barrier(offset: int, character: bytes) -> None:
    own = OwnRecords(Verifier("out", "deadbeef", KEY), Void())
    forged = b"deadbeef/3/0.1.%d/2" % offset
    written = [signed(), forged + b"/" + character * 24, forged]
    found = [(1, place, own.header(1, place, header, b"k", b"v")) for place, header in enumerate(written, start=40)]
    tail = tail_of([(partition, place, header) for partition, place, header in found if header is not None])
    assert [stamp.offset for stamp in tail.released.greatest.values()] == [17]
    assert own.foreign.count == 2


OLD = SigningKey(secret=bytes(range(32)), since_birth=False)


def of_an_old_home(
    header: bytes, offset: int, below: Mapping[int, int] | None, depth: int = 0
) -> VerifiedHeader | RejectedHeader:
    explains = explained_by(lambda: {0: 5, 1: 18}, 4, depth)
    verifier = Verifier("out", "deadbeef", OLD, unsigned_below=below, explains=explains)
    return verifier.verify(1, offset, header, b"k", b"v")


def test_records_of_an_earlier_version_are_believed_up_to_where_it_ended() -> None:
    assert of_an_old_home(TEXT[:-1], 39, {1: 40}) == VerifiedHeader(3, (0, 1, 17), "2", False)
    assert of_an_old_home(TEXT[:-1], 40, {1: 40}) is UNSIGNED
    assert of_an_old_home(TEXT[:-1], 10**9, None) == VerifiedHeader(3, (0, 1, 17), "2", False)
    assert of_an_old_home(signed(), 41, {1: 40}) == VerifiedHeader(3, (0, 1, 17), "2", True)


@pytest.mark.parametrize(
    "text",
    [
        b"deadbeef/3/0.1.18/2",  # the source ends at this offset
        b"deadbeef/3/0.1.999999999/2",
        b"deadbeef/3/0.2.0/2",
        b"deadbeef/3/1.1.0/2",
        b"deadbeef/3/0.1.0/4",
        b"deadbeef/3/0.1.0.1/2",
    ],
)
def test_without_a_tag_only_what_the_input_explains_is_believed(text: bytes) -> None:
    assert of_an_old_home(text, 39, {1: 40}) is UNEXPLAINED


def test_a_tag_of_a_key_that_an_older_copy_lacks_is_doubtful() -> None:
    """Otherwise results of the newer home would be published again."""
    assert of_an_old_home(TEXT + b"0" * 24, 39, None) is UNKNOWN_TAG
    assert UNKNOWN_TAG.may_be_ours
    assert of_an_old_home(TEXT + b"0" * 24, 40, {1: 40}) is WRONG_TAG


def test_the_secret_is_made_once_and_shown_nowhere(tmp_path: Path) -> None:
    first = Store(tmp_path / "decisions.db")
    made = first.signing_key()
    again = Store(tmp_path / "decisions.db")
    assert again.signing_key() == made
    assert made.since_birth
    assert len(made.secret) == 32
    assert made.secret.hex() not in repr(made)
    assert repr(made.secret) not in repr(made)
    assert Store(tmp_path / "other.db").signing_key().secret != made.secret


def test_a_new_home_has_its_secret_before_anything_is_decided(tmp_path: Path) -> None:
    with open_home(tmp_path / "home", "shop") as home:
        home.store.record_decision("topic", "out", 0, {"id": "x"})
        made = home.store.signing_key()
    assert made.since_birth
    with open_home(tmp_path / "home", "shop") as home:
        assert home.store.signing_key() == made


def test_a_home_of_an_earlier_version_is_known_by_what_it_has_decided(tmp_path: Path) -> None:
    store = Store(tmp_path / "decisions.db")
    store.create_region("counts", RegionRecord(fingerprint={}, start_offsets={}, partitions={}), {})
    assert not store.signing_key().since_birth
    other = Store(tmp_path / "other.db")
    other.record_decision("topic", "out", 0, {"id": "x"})
    assert not other.signing_key().since_birth
