"""As-of joins of streams with event time: the records of a stream, and the mistakes that it reports."""

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.nodes import ProcessorNode
from falkirk.declare.stream import Stream
from tests.unit.declare.test_declare_joins import join_of

ORDERS, PRICES = (Stream(ProcessorNode(name=name)) for name in ("orders", "prices"))
STREAM, TABLE = ORDERS.withWatermark("at", "10 seconds"), PRICES.withWatermark("since", "5 seconds").where("n > 1")


def test_both_watermarks_the_key_and_the_tolerance_are_recorded() -> None:
    found = join_of(STREAM.join_asof(TABLE.alias("p"), "product", "left_outer", tolerance="10 minutes"))
    assert (found.on, found.how, found.within_us, found.as_of) == (("product",), "left", 600_000_000, True)
    assert (found.names, found.keeps) == (("orders", "p"), (True, False))
    assert str(found).startswith("left as-of join of orders and p on product within 600 s, times at, 10 s")
    assert join_of(STREAM.join_asof(TABLE, ["shop", "product"])).keeps == (False, False)


def test_a_join_of_all_pairs_is_another_one() -> None:
    one, other = (join_of(each) for each in (STREAM.join(TABLE, "id"), STREAM.join_asof(TABLE, "id")))
    assert str(other) == str(one).replace("inner join", "inner as-of join")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: STREAM.join_asof(PRICES, "id"), "prices has no withWatermark()"),
        (lambda: ORDERS.join_asof(PRICES, "id"), "orders has no withWatermark()"),
        (lambda: STREAM.join_asof(TABLE, "id", "right"), "how='right' is none of inner, left, leftouter"),
        (lambda: STREAM.join_asof(TABLE, []), "on=[] is not the names of columns"),
        (lambda: STREAM.join_asof(TABLE, "AT"), "column AT is the event time, and on= names the key"),
        (lambda: STREAM.join_asof(TABLE, ["id", "since"]), "column since is the event time"),
        (lambda: STREAM.join_asof(TABLE, "id", tolerance="200000 days"), "tolerance='200000 days' is too long"),
        (lambda: STREAM.join_asof(TABLE.drop("since"), "id"), "may change or drop column since of prices"),
    ],
)
def test_what_can_not_be_joined_is_refused(wrong: Callable[[], Stream], reason: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        wrong()
    assert caught.value.condition == "JOIN_INVALID"
    assert str(caught.value).startswith("join_asof() can't pair these streams")
    assert reason in str(caught.value)
    assert "on= names the key" in str(caught.value)


def test_the_other_side_is_a_stream() -> None:
    wrong: Any = "prices"
    with pytest.raises(fk.DefinitionError) as caught:
        STREAM.join_asof(wrong, "id")
    assert (caught.value.condition, caught.value.parameters["operation"]) == ("NOT_A_STREAM", "join_asof")
