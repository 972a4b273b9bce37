"""Dead letters on the page: bounded, cleaned, and never more than text."""

import json
from types import SimpleNamespace

import pytest

from falkirk.platform.terminal import plain_text
from falkirk.user_tools.commands.dashboard import letters as module
from falkirk.user_tools.commands.dashboard.letters import (
    LETTERS_MAX,
    PAYLOAD_MAX,
    REASON_MAX,
    letter_values,
    newest_letters,
)
from tests.unit.dashboard.recorded import HOSTILE


class Message:
    """A message of the dead letters."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def value(self) -> bytes | None:
        return self._value

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 5000


def letter(content: object, *, is_ours: bool = True) -> dict[str, object]:
    value = content if isinstance(content, bytes | None) else json.dumps(content).encode()
    return letter_values("sales", "letters", Message(value), is_ours=is_ours)  # type: ignore[arg-type]


def test_a_letter_says_where_it_comes_from_and_why() -> None:
    found = letter({"reason": f"no JSON: {HOSTILE}", "topic": "orders", "partition": 0, "offset": 4, "value": HOSTILE})
    assert found == {
        "id": "letters/3@17", "unit": "sales", "is_ours": True, "at_s": 5.0, "reason": f"no JSON: {HOSTILE}",
        "source": "orders 0@4", "payload": HOSTILE, "length": len(HOSTILE),
    }  # fmt: skip


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\x00", b"[" * 100_000, b"[1]", b'"x"', {"reason": None, "value": 7}]
)
def test_any_other_content_is_shown_too(content: object) -> None:
    found = letter(content)
    assert len(str(found["payload"])) <= PAYLOAD_MAX + 1
    assert json.dumps(found)


def test_long_ones_are_cut_and_control_characters_removed() -> None:
    found = letter({"reason": "r" * 9999, "value": "\x1b[2J\u202e" + "v" * 99_999})
    assert len(str(found["reason"])) == REASON_MAX + 1
    assert PAYLOAD_MAX - 2 < len(str(found["payload"])) <= PAYLOAD_MAX + 1
    assert str(found["payload"]).startswith("[2Jv")
    assert found["length"] == 99_999 + 5


def test_a_letter_of_others_says_so() -> None:
    found = letter({"reason": "trust me", "value": "x"}, is_ours=False)
    assert found["reason"] == "not written by this home: trust me"


def test_only_the_shown_part_of_a_long_letter_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def clean(text: str) -> str:
        lengths.append(len(text))
        return plain_text(text)

    monkeypatch.setattr(module, "plain_text", clean)
    letter({"reason": "é" * 1_000_000, "source": "s" * 1_000_000, "value": "é" * 1_000_000})
    assert sorted(lengths) == [REASON_MAX, REASON_MAX, PAYLOAD_MAX]


def test_letters_of_others_with_times_in_the_future_hide_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = [{"is_ours": False, "at_s": 9e9 + n} for n in range(LETTERS_MAX)]
    ours = [{"is_ours": True, "at_s": float(n)} for n in range(3)]
    monkeypatch.setattr(module, "_of_topic", lambda place, unit, topic: [*forged, *ours])
    shape = SimpleNamespace(dead_letters={"sales": "letters"})
    found = newest_letters(None, shape)  # type: ignore[arg-type]
    assert found[:3] == ours[::-1]
    assert len(found) == LETTERS_MAX
