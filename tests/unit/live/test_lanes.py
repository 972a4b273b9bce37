"""The token of an incarnation: the gate's epoch, if no other process has taken the gate meanwhile."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import InternalError
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.context import Context

HOME = SimpleNamespace(application="shop", identity="deadbeef")
CONTEXT = cast(Context, SimpleNamespace(home=HOME, connection=None))


class Gate:
    """A gate of a broker that other processes may take too. Args: tokens: the broker's answers, in order."""

    def __init__(self, *tokens: str) -> None:
        self._tokens: Iterator[str] = iter(tokens)

    def token(self) -> str:
        return next(self._tokens)


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note each taking of ids instead of asking a broker."""
    found: list[Any] = []
    monkeypatch.setattr(lanes, "take_ids", lambda connection, ids: found.append(ids))
    return found


@pytest.mark.parametrize(
    ("tokens", "token", "times"),
    [
        (("", "7/0"), "7/0", 1),  # the first start of all
        (("7/0", "7/1"), "7/1", 1),
        (("7/1", "7/3", "7/3", "7/4"), "7/4", 2),  # another process took it between the two looks
        (("", "7/1", "7/1", "7/2"), "7/2", 2),
        (("7/32766", "8/0", "8/0", "8/1"), "8/1", 2),  # the epochs of a producer id are used up
    ],
)
def test_the_token_is_that_of_an_epoch_that_only_this_process_can_have_made(
    taken: list[Any], tokens: tuple[str, ...], token: str, times: int
) -> None:
    assert lanes._taken(CONTEXT, "out", Gate(*tokens)) == token
    assert taken == [["falkirk.shop.deadbeef.out.gate"]] * times


def test_a_gate_that_others_keep_taking() -> None:
    with pytest.raises(InternalError) as caught:
        lanes._taken(CONTEXT, "out", Gate(*["7/1", "7/5"] * 10))
    assert caught.value.condition == "GATE_CONTENDED"
