"""The contract of sinks: the release of epochs needs it from each, also from those of users."""

from typing import TYPE_CHECKING

import pytest

from falkirk.runtime.spark.sinks.target import Target
from tests.integration.targets import ROWS, Place, epoch, release_in_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ids(*numbers: int) -> list[int]:
    """Return the ids of the rows of these epochs."""
    return [number * ROWS + row for number in numbers for row in range(ROWS)]


def keep_contract(out: Place, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a sink keeps its contract.

    `out.make` returns a sink that knows only the stored epochs, as after each start. A topic can't tell which epochs
    it has all of, and shows the first part of an epoch.
    """
    is_topic = out.kind == "topic"

    def has(target: Target, number: int) -> None:
        assert target.delivered() == (None if is_topic else number), "the sink says which epochs it has"

    has(out.make(), 0)
    assert out.make().visible() == 0

    # The sink has an epoch once, even if it is delivered again.
    first = out.make()
    for target in (first, first, out.make()):
        target.deliver(0, epoch(spark, 0))
        has(target, 1)
    assert sorted(out.read()) == ids(0), "an epoch is there once"
    has(out.make(), 1)

    # An interrupted try changes nothing that a reader sees, and the next one completes the epoch.
    release_in_part(out, spark, 1, monkeypatch)
    has(out.make(), 1)
    shown = ids(0, 1)[: ROWS + ROWS // 2] if is_topic else ids(0)
    assert sorted(out.read()) == shown, "nothing of an epoch that was cut off shows"
    again = out.make()
    again.deliver(1, epoch(spark, 1))
    has(again, 2)
    assert sorted(out.read()) == ids(0, 1), "the next try makes an epoch whole"
    assert out.make().visible() == 2

    # Epoch 2 was cancelled, and epoch 4 has no rows.
    out.make().deliver(3, epoch(spark, 3))
    has(out.make(), 4)
    out.make().deliver(4, epoch(spark, 4, upto=0))
    has(out.make(), 5)
    assert sorted(out.read()) == ids(0, 1, 3), "each epoch is there once"

    # An older epoch changes nothing, and does not make the sink forget those after it.
    out.make().deliver(1, epoch(spark, 1))
    has(out.make(), 5)
    assert sorted(out.read()) == ids(0, 1, 3), "each epoch is there once"
