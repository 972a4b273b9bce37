"""Lookups in the newest rows of a stream: the steps that a stream records, and the mistakes that it reports."""

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.nodes import BESIDE, NEWEST_ROW, ProcessorNode, steps_of
from falkirk.declare.stream import Stream

ORDERS, PRICES = (Stream(ProcessorNode(name=name)) for name in ("orders", "prices"))
TABLE = fk.Newest(PRICES.where("price > 1"))


def test_the_key_and_the_column_are_recorded() -> None:
    found = ORDERS.lookup(TABLE, {"thing": "product", "shop": "shop"}, "price")
    beside, latest = steps_of(found.node)
    assert (beside.operation, latest.operation) == (BESIDE, NEWEST_ROW)
    assert beside.arguments == (TABLE.stream, (("thing", "product"), ("shop", "shop")), "price")
    assert latest.arguments == (("product", "shop"), "price")
    assert beside.where == latest.where
    assert steps_of(ORDERS.lookup(TABLE, "product", "price").node)[1].arguments == (("product",), "price")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: ORDERS.lookup(TABLE, "id", "price", epoch="epoch"), "have no epochs"),
        (lambda: ORDERS.lookup(TABLE, {"id": 1}, "price"), "compute the column first"),  # type: ignore[dict-item]
        (lambda: ORDERS.lookup(TABLE, "id", "id"), "'id' is a column of the key"),
        (lambda: ORDERS.lookup(TABLE, [], "price"), "on= needs the name of a column"),
        (lambda: ORDERS.lookup(PRICES, "id", "price"), "Stream is neither"),  # type: ignore[arg-type]
    ],
)
def test_wrong_lookups_are_refused(wrong: Callable[[], Stream], reason: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        wrong()
    assert caught.value.condition == "LOOKUP_INVALID"
    assert reason in str(caught.value)


def test_the_table_is_a_stream() -> None:
    wrong: Any = "prices"
    with pytest.raises(fk.DefinitionError) as caught:
        ORDERS.lookup(fk.Newest(wrong), "id", "price")
    assert (caught.value.condition, caught.value.parameters["operation"]) == ("NOT_A_STREAM", "fk.Newest")
