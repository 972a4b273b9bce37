"""Dead letters: which of them can be sent again, and which contain all data for that."""

import json
from typing import Any

import pytest

from falkirk.kafka_client.signing import VerifiedHeader
from falkirk.plan.fingerprint import KEYED_STEP, places_of_keyed_step
from falkirk.runtime.spark.rows import RAW_BYTES_MAX
from falkirk.user_tools.commands.redrive import refusals
from falkirk.user_tools.redrive.letters import Letter, _of_time, parse_letter
from falkirk.user_tools.redrive.sending import count_by_kind, letters_to_send

SOURCES = {"clicks": "events"}
REASONS = ["late", "column at is not between the years 1000 and 9000", "column at is more than 60 s ahead of the clock"]


def said(**content: Any) -> Letter:
    told = {"reason": "does not fit the schema", "topic": "events", "partition": 1, "offset": 7, **content}
    kept = {name: value for name, value in told.items() if value is not None}
    return parse_letter("counts", b"key", json.dumps(kept).encode(), SOURCES)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({}, "input"),
        ({"reason": "column id is null", "value": "{}"}, "input"),
        ({"reason": "too large: 9 bytes, 8 fit"}, "result"),
        ({"reason": "too large: 9 bytes", "topic": "out", "partition": None, "offset": None, "epoch": 3}, "result"),
        ({"topic": "files:orders"}, "file"),
        ({"topic": "falkirk.shop.deadbeef.sales-by-id"}, "unknown"),
        ({"offset": None}, "unknown"),
        ({"partition": "1"}, "unknown"),
        ({"topic": None}, "unknown"),
    ],
)  # fmt: skip
def test_only_an_input_that_did_not_fit_can_be_sent_again(content: dict[str, Any], kind: str) -> None:
    letter = said(**content)
    assert letter.kind == kind
    assert letter.origin == (("events", 1, 7) if kind == "input" else None)
    assert count_by_kind([letter])[kind] == 1


@pytest.mark.parametrize("value", [None, b"", b"no json", b"[]", b"\xff", b"null"])
def test_what_somebody_else_wrote_there_is_left_alone(value: bytes | None) -> None:
    assert parse_letter("counts", None, value, SOURCES).kind == "unknown"


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (None, True),
        ("no json", True),
        ("x" * RAW_BYTES_MAX, False),
        ("ü" * (RAW_BYTES_MAX // 2), False),
        ("x" * (RAW_BYTES_MAX - 1) + "\N{REPLACEMENT CHARACTER}", False),
        ("bytes that are no text: \N{REPLACEMENT CHARACTER}", False),
    ],
)
def test_a_letter_that_does_not_hold_all_is_known(value: str | None, whole: bool) -> None:
    assert said(value=value).is_whole is whole


def test_a_key_that_is_no_text_may_have_lost_something() -> None:
    content = b'{"reason": "column id is null", "topic": "events", "partition": 0, "offset": 0, "value": "{}"}'
    keys = (None, b"key", "k\N{REPLACEMENT CHARACTER}".encode(), b"\xff")
    assert [parse_letter("counts", key, content, SOURCES).is_whole for key in keys] == [True, True, False, False]


@pytest.mark.parametrize(
    ("stamp", "kind"),
    [
        ({"source": "clicks", "partition": 1, "offset": 7}, "input"),
        ({"source": "another batch", "partition": 0, "offset": 7}, "row"),
        ({"source": "clicks", "partition": 1}, "row"),
        ({}, "row"),
    ],
)
def test_of_a_row_on_which_a_function_failed_only_the_record_can_be_sent(stamp: dict[str, Any], kind: str) -> None:
    """The letter contains the row, and not the record from which the row was made."""
    content = {"reason": "the function failed: ValueError: no", "region": "shop.py:7", "value": "{}", **stamp}
    letter = parse_letter("counts", None, json.dumps(content).encode(), SOURCES)
    assert (letter.kind, letter.is_whole) == (kind, letter.kind == "row")
    assert letter.origin == (("events", 1, 7) if kind == "input" else None)
    assert count_by_kind([letter])[kind] == 1


@pytest.mark.parametrize("reason", ["the function failed: ValueError: no", *REASONS, "column at is null"])
def test_a_letter_of_a_live_step_says_whether_it_can_be_sent_again(reason: str) -> None:
    """Only the topic has the record: the letter has the columns that the step got."""
    sent = said(reason=reason, value="{}", traceback="...", resend="safe")
    assert (sent.kind, sent.origin, sent.is_whole, sent.waits) == ("input", ("events", 1, 7), False, False)
    assert not sent.is_of_time, "it is not judged by its stamp"
    waiting = said(reason=reason, value="{}", resend="once_covered")
    assert (waiting.kind, waiting.origin, waiting.is_whole, waiting.waits) == ("input", ("events", 1, 7), False, True)
    for resend in ("had_effect", "may_change"):
        refused = said(reason=reason, value="{}", resend=resend)
        assert (refused.kind, refused.origin) == (resend, None)
    inside = said(reason=reason, value="{}", resend="safe", topic="falkirk.shop.deadbeef.sales-by-id")
    assert (inside.kind, inside.origin) == ("unknown", None)


def test_each_reason_not_to_send_letters_is_told() -> None:
    report = {"had_effect": 1_000, "may_change": 2, "uncovered": 3, "elsewhere": 4}
    told = [(error.condition, error.parameters) for error in refusals(report)]
    assert told == [("REDRIVE_REFUSED", {"count": count}) for count in report.values()]
    assert len({error.message.partition(": ")[2] for error in refusals(report)}) == 4
    assert list(refusals(dict.fromkeys(report, 0))) == []


def test_one_input_in_several_dead_letters_is_one() -> None:
    cut_off = said(value="x" * RAW_BYTES_MAX)
    letters = [cut_off, said(value="x"), said(offset=3), said(offset=9), said(reason="too large: ")]
    found = letters_to_send(letters, frozenset({("events", 1, 9)}))
    assert [letter.origin for letter in found] == [("events", 1, 3), ("events", 1, 7)]
    assert found[1].is_whole


@pytest.mark.parametrize("reason", REASONS)
def test_a_live_record_with_an_unsuitable_time_is_read_from_its_topic(reason: str) -> None:
    """The letter has the columns that the step got, which need not be those of the record."""
    letter = said(reason=reason, value="{}")
    assert letter.is_of_time
    one = _of_time(letter, VerifiedHeader(1, (0, 1, 7), "0", signed=True), 0)
    assert (one.kind, one.origin, one.is_whole) == ("input", ("events", 1, 7), False)
    made = _of_time(letter, VerifiedHeader(1, (0, 1, 7, 2), "0", signed=True), 0)
    assert made.kind == "had_effect", "other records of the same input may have had an effect"


@pytest.mark.parametrize(
    ("keyed", "own"),
    [("windows((id), ...)", (0,)), ("join(left join of shown ...)", (0, 0)), ("dropDuplicates(id)", ()), ("none", ())],
)
def test_sub_indexes_of_a_keyed_step_do_not_make_a_late_record_a_result(keyed: str, own: tuple[int, ...]) -> None:
    added, letter = places_of_keyed_step({KEYED_STEP: keyed}), said(reason="late", value="{}")
    assert added == len(own)
    assert _of_time(letter, VerifiedHeader(1, (0, 1, 7, *own), "0", signed=True), added).kind == "input"
    exploded = _of_time(letter, VerifiedHeader(1, (0, 1, 7, *own, 0), "0", signed=True), added)
    assert exploded.kind == "had_effect"


def test_other_reasons_are_not_of_time() -> None:
    assert not said(reason="does not fit the schema").is_of_time
    assert not said(reason="column at is null").is_of_time


def test_a_late_row_of_a_micro_batch_is_like_one_on_which_a_function_failed() -> None:
    content = {"reason": "late", "region": "first", "value": "{}", "source": "clicks", "partition": 1, "offset": 7}
    letter = parse_letter("counts", None, json.dumps(content).encode(), SOURCES)
    assert (letter.kind, letter.origin, letter.is_whole) == ("input", ("events", 1, 7), False)


@pytest.mark.parametrize(
    ("count", "begin"), [(1, "1 of the dead letters must"), (2_000, "2,000 of the dead letters must")]
)
def test_the_refusals_fit_one_letter_and_many(count: int, begin: str) -> None:
    told = [
        error.message
        for error in refusals(dict.fromkeys(("had_effect", "may_change", "uncovered", "elsewhere"), count))
    ]
    assert [text.startswith(f"{begin} not be sent again") for text in told] == [True] * 4
