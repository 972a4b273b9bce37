"""The book of a push source: ids, retries, the window, accepted requests, and requests without an answer."""

import pytest

from falkirk.push.errors import RequestError
from falkirk.push.registry import SKEW_MS, Entry, RequestRegistry, digest_of, read_back

BODY = b'{"id":"a"}'


def sent(book: RequestRegistry, request_id: str, offset: int, *, at_ms: int = 1_000, partition: int = 0) -> Entry:
    book.add(request_id, BODY, at_ms=at_ms, stamped_ms=at_ms)
    return book.sent(request_id, partition, offset)


def test_an_id_is_the_same_request_and_another_body_is_refused() -> None:
    book = RequestRegistry()
    assert book.find("a", digest_of(BODY)) is None
    entry = book.add("a", BODY, at_ms=1_000, stamped_ms=1_000)
    assert book.find("a", digest_of(BODY)) is entry
    with pytest.raises(RequestError) as refused:
        book.find("a", digest_of(b"{}"))
    assert (refused.value.condition, refused.value.status) == ("REQUEST_DIFFERS", 409)


def test_what_is_on_its_way_is_told_by_its_age() -> None:
    book = RequestRegistry()
    assert book.oldest_unsent_ms() is None
    book.add("a", BODY, at_ms=1_000, stamped_ms=1_000)
    book.add("b", BODY, at_ms=2_000, stamped_ms=2_000)
    book.sent("a", 0, 0)
    assert book.oldest_unsent_ms() == 2_000


def test_a_request_is_accepted_when_its_own_place_is_behind_the_frontier() -> None:
    book = RequestRegistry()
    a, b, c = sent(book, "a", 0), sent(book, "b", 2), sent(book, "c", 0, partition=1)
    assert book.accept({0: 2, 1: 0}) == [a]
    assert not b.is_accepted
    assert not c.is_accepted
    assert book.accept({0: 1, 1: 1}) == [c], "an older frontier revokes nothing"
    assert a.is_done(wants_answer=False)
    assert not a.is_done(wants_answer=True)


def test_a_frontier_that_is_known_before_the_place_counts_for_it() -> None:
    book = RequestRegistry()
    book.add("a", BODY, at_ms=1_000, stamped_ms=1_000)
    book.accept({0: 5})
    book.silence({0: 5})
    entry = book.sent("a", 0, 4)
    assert entry.is_accepted
    assert entry.is_silent


def test_the_first_answer_holds_and_silence_is_for_those_without() -> None:
    book = RequestRegistry()
    a, b = sent(book, "a", 0), sent(book, "b", 1)
    assert book.answered("a", b"1", 2_000) is a
    assert book.answered("a", b"2", 2_000) is None
    assert book.answered("nobody", b"2", 2_000) is None
    assert book.silence({0: 2}) == [b]
    assert (a.answer, a.is_silent, b.is_silent) == (b"1", False, True)
    assert b.is_done(wants_answer=True)


def test_an_answer_that_is_older_than_its_request_is_anothers() -> None:
    book = RequestRegistry()
    entry = sent(book, "a", 0, at_ms=100_000)
    assert book.answered("a", b"stale", 100_000 - SKEW_MS - 1) is None
    assert book.answered("a", b"mine", 100_000 - SKEW_MS) is entry
    assert entry.answer == b"mine"


def test_only_what_is_old_and_over_is_forgotten() -> None:
    book = RequestRegistry()
    for offset, at_ms in ((0, 1_000), (2, 2_000), (4, 3_000), (6, 2_500)):
        sent(book, f"r{offset}", offset, at_ms=at_ms)
    book.accept({0: 5})
    book.silence({0: 3})
    book.forget(1_000)
    assert book.disposable({0: 9}) == {}, "all requests are newer"
    book.forget(2_600)
    assert book.disposable({0: 9}) == {0: 3}, "requests in the window stay, and all later ones too"
    book.forget(9_000)
    assert book.disposable({0: 9}) == {0: 3}, "the next request may still get an answer"
    book.answered("r4", b"mine", 3_000)
    book.forget(9_000)
    assert book.disposable({0: 9}) == {0: 5}, "the last request is not accepted"
    assert book.disposable({0: 1}) == {0: 1}, "a reader may still read the others again"
    assert book.disposable({}) == {}


def test_what_is_remembered_does_not_wait_for_a_reader_that_seldom_saves() -> None:
    """A daily batch acknowledges its input after days; only the window decides how long a request is remembered."""
    book = RequestRegistry()
    for offset in range(100):
        sent(book, f"r{offset}", offset, at_ms=offset)
        book.accept({0: offset + 1})
        book.silence({0: offset + 1})
        book.forget(offset - 10)
        weight = max(book.weight_bytes, 0)
    assert weight < 12 * 1_000
    assert book.disposable({}) == {}


def test_what_is_forgotten_is_a_new_request_and_weighs_nothing() -> None:
    book = RequestRegistry()
    sent(book, "a", 0)
    book.answered("a", b"x" * 100, 1_000)
    kept = sent(book, "b", 1)
    book.accept({0: 1})
    book.forget(9_000)
    assert book.find("a", digest_of(b"other")) is None
    assert book.find("b", digest_of(BODY)) is kept
    book.accept({0: 2})
    book.silence({0: 2})
    book.forget(9_000)
    assert book.weight_bytes == 0
    assert book.oldest_stamp_ms() is None
    assert book.newest_ms() is None


def test_what_is_on_its_way_weighs_what_is_sent() -> None:
    book, value = RequestRegistry(), b"x" * 1_000_000
    book.add("a", value, at_ms=1_000, stamped_ms=1_000)
    assert book.weight_bytes > 1_000_000
    book.sent("a", 0, 0)
    assert book.weight_bytes < 1_000


def test_forgetting_a_former_use_of_an_id_keeps_the_present_one() -> None:
    book = read_back([("a", b"old", 1_000, 1_000, 0, 0), ("a", BODY, 5_000, 5_000, 0, 1)])
    book.accept({0: 1})
    book.silence({0: 1})
    book.forget(9_000)
    assert book.find("a", digest_of(BODY)) is not None


def test_what_is_read_back_is_known_as_before() -> None:
    book = read_back([("a", BODY, 10, 2_000, 1, 7), ("b", BODY, 20, 1_000, 0, 3)])
    entry = book.find("a", digest_of(BODY))
    assert entry is not None
    assert (entry.place, entry.at_ms, entry.stamped_ms) == ((1, 7), 10, 2_000)
    assert (book.newest_ms(), book.oldest_stamp_ms()) == (20, 1_000)
    assert book.oldest_unsent_ms() is None
    with pytest.raises(RequestError):
        book.find("b", digest_of(b"other"))
