"""The registry of a push source: ids, retries, the window, accepted requests, and requests without an answer."""

import pytest

from falkirk.http_source.answers_from import answers_from_of, answers_header_of
from falkirk.http_source.errors import RequestError
from falkirk.http_source.registry import SKEW_MS, RequestEntry, RequestRegistry, digest_of, read_back
from falkirk.theory.ids import Offset

BODY = b'{"id":"a"}'


def sent(
    registry: RequestRegistry, request_id: str, offset: int, *, at_ms: int = 1_000, partition: int = 0
) -> RequestEntry:
    registry.add(request_id, BODY, at_ms=at_ms, stamped_ms=at_ms)
    return registry.sent(request_id, partition, offset)


def test_an_id_is_the_same_request_and_another_body_is_refused() -> None:
    registry = RequestRegistry()
    assert registry.find("a", digest_of(BODY)) is None
    entry = registry.add("a", BODY, at_ms=1_000, stamped_ms=1_000)
    assert registry.find("a", digest_of(BODY)) is entry
    with pytest.raises(RequestError) as refused:
        registry.find("a", digest_of(b"{}"))
    assert (refused.value.condition, refused.value.status) == ("REQUEST_DIFFERS", 409)


def test_what_is_on_its_way_is_told_by_its_age() -> None:
    registry = RequestRegistry()
    assert registry.oldest_unsent_ms() is None
    registry.add("a", BODY, at_ms=1_000, stamped_ms=1_000)
    registry.add("b", BODY, at_ms=2_000, stamped_ms=2_000)
    registry.sent("a", 0, 0)
    assert registry.oldest_unsent_ms() == 2_000


def test_a_request_is_accepted_when_its_own_place_is_behind_the_frontier() -> None:
    registry = RequestRegistry()
    a, b, c = sent(registry, "a", 0), sent(registry, "b", 2), sent(registry, "c", 0, partition=1)
    assert registry.accept({0: 2, 1: 0}) == [a]
    assert not b.is_accepted
    assert not c.is_accepted
    assert registry.accept({0: 1, 1: 1}) == [c], "an older frontier revokes nothing"
    assert a.is_done(wants_answer=False)
    assert not a.is_done(wants_answer=True)


def test_a_frontier_that_is_known_before_the_place_counts_for_it() -> None:
    registry = RequestRegistry()
    registry.add("a", BODY, at_ms=1_000, stamped_ms=1_000)
    registry.accept({0: 5})
    registry.silence({0: 5})
    entry = registry.sent("a", 0, 4)
    assert entry.is_accepted
    assert entry.is_silent


def test_the_first_answer_holds_and_silence_is_for_those_without() -> None:
    registry = RequestRegistry()
    a, b = sent(registry, "a", 0), sent(registry, "b", 1)
    assert registry.answered("a", b"1", 2_000, (0, Offset(0))) is a
    assert registry.answered("a", b"2", 2_000, (0, Offset(0))) is None
    assert registry.answered("nobody", b"2", 2_000, (0, Offset(0))) is None
    assert registry.silence({0: 2}) == [b]
    assert (a.answer, a.is_silent, b.is_silent) == (b"1", False, True)
    assert b.is_done(wants_answer=True)


def test_an_answer_that_is_older_than_its_request_is_anothers() -> None:
    registry = RequestRegistry()
    entry = sent(registry, "a", 0, at_ms=100_000)
    assert registry.answered("a", b"stale", 100_000 - SKEW_MS - 1, (0, Offset(0))) is None
    assert registry.answered("a", b"mine", 100_000 - SKEW_MS, (0, Offset(0))) is entry
    assert entry.answer == b"mine"


def test_an_answer_belongs_to_a_request_by_its_position_and_not_by_its_time() -> None:
    registry = RequestRegistry()
    entry = registry.add("a", BODY, at_ms=100_000, stamped_ms=100_000)
    assert registry.answered("a", b"another's", 200_000, (0, Offset(9))) is None, "it was not sent yet"
    entry.answers_from = {0: Offset(7), 1: Offset(3)}
    assert registry.answered("a", b"another's", 200_000, (0, Offset(6))) is None
    assert registry.answers_from() == {0: 7, 1: 3}
    assert registry.oldest_stamp_ms() is None
    assert registry.answered("a", b"mine", 0, (0, Offset(7))) is entry


def test_an_answer_in_a_new_partition_is_newer_than_the_request() -> None:
    registry = RequestRegistry()
    entry = registry.add("a", BODY, at_ms=100_000, stamped_ms=100_000)
    entry.answers_from = {0: Offset(7)}
    assert registry.answered("a", b"mine", 0, (1, Offset(0))) is entry


@pytest.mark.parametrize(("key", "value", "known"), [(b"k", b"v", True), (b"l", b"v", False), (b"k", b"w", False)])
def test_positions_of_answers_are_believed_if_a_gateway_signed_them(key: bytes, value: bytes, known: bool) -> None:
    header = answers_header_of({0: Offset(7), 2: Offset(3)}, key, b"a", value)
    found = answers_from_of([("other", None), header], b"k", b"a", b"v")
    assert found == ({0: 7, 1: 0, 2: 3} if known else None)


def test_only_what_is_old_and_over_is_forgotten() -> None:
    registry = RequestRegistry()
    for offset, at_ms in ((0, 1_000), (2, 2_000), (4, 3_000), (6, 2_500)):
        sent(registry, f"r{offset}", offset, at_ms=at_ms)
    registry.accept({0: 5})
    registry.silence({0: 3})
    registry.forget(1_000)
    assert registry.disposable({0: 9}) == {}, "all requests are newer"
    registry.forget(2_600)
    assert registry.disposable({0: 9}) == {0: 3}, "requests in the window stay, and all later ones too"
    registry.forget(9_000)
    assert registry.disposable({0: 9}) == {0: 3}, "the next request may still get an answer"
    registry.answered("r4", b"mine", 3_000, (0, Offset(0)))
    registry.forget(9_000)
    assert registry.disposable({0: 9}) == {0: 5}, "the last request is not accepted"
    assert registry.disposable({0: 1}) == {0: 1}, "a reader may still read the others again"
    assert registry.disposable({}) == {}


def test_what_is_remembered_does_not_wait_for_a_reader_that_seldom_saves() -> None:
    """A daily batch acknowledges its input after days; only the window decides how long a request is remembered."""
    registry = RequestRegistry()
    for offset in range(100):
        sent(registry, f"r{offset}", offset, at_ms=offset)
        registry.accept({0: offset + 1})
        registry.silence({0: offset + 1})
        registry.forget(offset - 10)
        weight = max(registry.weight_bytes, 0)
    assert weight < 12 * 1_000
    assert registry.disposable({}) == {}


def test_what_is_forgotten_is_a_new_request_and_weighs_nothing() -> None:
    registry = RequestRegistry()
    sent(registry, "a", 0)
    registry.answered("a", b"x" * 100, 1_000, (0, Offset(0)))
    kept = sent(registry, "b", 1)
    registry.accept({0: 1})
    registry.forget(9_000)
    assert registry.find("a", digest_of(b"other")) is None
    assert registry.find("b", digest_of(BODY)) is kept
    registry.accept({0: 2})
    registry.silence({0: 2})
    registry.forget(9_000)
    assert registry.weight_bytes == 0
    assert registry.oldest_stamp_ms() is None
    assert registry.newest_ms() is None


def test_what_is_on_its_way_weighs_what_is_sent() -> None:
    registry, value = RequestRegistry(), b"x" * 1_000_000
    registry.add("a", value, at_ms=1_000, stamped_ms=1_000)
    assert registry.weight_bytes > 1_000_000
    registry.sent("a", 0, 0)
    assert registry.weight_bytes < 1_000


def test_forgetting_a_former_use_of_an_id_keeps_the_present_one() -> None:
    registry = read_back([("a", b"old", 1_000, 1_000, 0, 0, None), ("a", BODY, 5_000, 5_000, 0, 1, None)])
    registry.accept({0: 1})
    registry.silence({0: 1})
    registry.forget(9_000)
    assert registry.find("a", digest_of(BODY)) is not None


def test_what_is_read_back_is_known_as_before() -> None:
    registry = read_back([("a", BODY, 10, 2_000, 1, 7, None), ("b", BODY, 20, 1_000, 0, 3, None)])
    entry = registry.find("a", digest_of(BODY))
    assert entry is not None
    assert (entry.place, entry.at_ms, entry.stamped_ms) == ((1, 7), 10, 2_000)
    assert (registry.newest_ms(), registry.oldest_stamp_ms()) == (20, 1_000)
    assert registry.oldest_unsent_ms() is None
    with pytest.raises(RequestError):
        registry.find("b", digest_of(b"other"))
