"""Which records came before a result, without Spark; and the words of `falkirk why` about an aggregate.

`tests/integration/inference/test_judge.py` and `tests/integration/live_regions/test_live_chains.py` compute results.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.platform.terminal import Terminal
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import LogId
from falkirk.user_tools.commands import made_of_inputs
from falkirk.user_tools.commands.made_of_inputs import RegionInputs
from falkirk.user_tools.commands.made_of_values import same_values
from falkirk.user_tools.commands.records import TopicRecords, place_of_text
from falkirk.user_tools.commands.why import origin_tree
from tests.unit.commands.told_origins import HOP, Shop, Topics, made

Place = tuple[int, ...]
NEXT_HOP = f"{HOP}-2"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch)


def source(topic: str, *, is_hop: bool = False) -> Any:
    return SimpleNamespace(topic=SimpleNamespace(topic=topic, log=LogId(topic), reads_headers=False), is_hop=is_hop)


def inputs(shop: Shop, result: str, *sources: Any) -> RegionInputs:
    """Return the inputs of a result. A hop is written from `orders`, and another one from it. All their records are
    read."""
    assert shop.app.kafka is not None
    records = TopicRecords(Storage(home=shop.home, connection=shop.app.kafka))
    writers = {
        HOP: SimpleNamespace(name="sales-by-item", sources=[source("orders")]),
        NEXT_HOP: SimpleNamespace(name="sales-by-shop", sources=[source(HOP, is_hop=True)]),
    }
    found = RegionInputs(
        region=cast(Any, SimpleNamespace(name="sales", sources=sources)), path=[], hops=cast(Any, writers),
        result=records.one(cast(Any, place_of_text(result))), records=records, store=shop.home.store,
        session=cast(Any, None), look=100,
    )  # fmt: skip
    for topic in ("orders", "prices"):
        if records.exists(LogId(topic)):
            for each in records.forward(LogId(topic), {}, records.bounds(LogId(topic))[1]):
                found._found[topic, each.at.partition, each.at.offset] = each
    return found


def test_in_its_own_log_offsets_decide_and_in_others_timestamps(shop: Shop) -> None:
    for _ in range(4):
        shop.send("orders", {"item": "tea"})
        shop.send("prices", {"item": "tea"})
    at = ""
    for number in range(3):  # the result has the timestamp of the third record of each partition
        at = shop.send("sales", {}, by=f"0.0.{min(number, 1)}")
    stamps = [(topic, 0, offset) for topic in (0, 1) for offset in range(4)]
    alone, both = inputs(shop, at, source("orders")), inputs(shop, at, source("orders"), source("prices"))
    assert alone.before(stamps[:4], ["orders"]) == [(0, 0, 0), (0, 0, 1)]
    found = both.before(stamps, ["orders", "prices"])
    assert {*found} == {(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (1, 0, 2)}
    assert found[-1] == (0, 0, 1), "the cause comes last"


def test_behind_a_hop_its_offsets_decide_and_deleted_records_came_before(shop: Shop) -> None:
    for n in range(4):
        for p in (0, 1):
            shop.send("orders", {"item": "tea", "n": n}, partition=p)
    order = [(1, 0), (0, 0), (1, 1), (0, 1), (1, 2), (0, 2)]  # the fourth records have not reached it yet
    for p, offset in order:
        shop.send(HOP, {}, by=f"0.{p}.{offset}")
    at = shop.send("sales", {}, by="0.0.3")
    stamps = [(0, p, offset) for p in (0, 1) for offset in range(4)]

    def before() -> list[Place]:
        return inputs(shop, at, source(HOP, is_hop=True)).before(stamps, ["orders"])

    had = [(0, p, offset) for p, offset in order[:4]]
    assert before() == had
    assert inputs(shop, at, source(HOP, is_hop=True)).cause(["orders"]) == (0, 0, 1)
    shop.begins[HOP, 0] = 3
    assert {*before()} == {*had}
    assert before()[-1] == had[-1]
    shop.begins[HOP, 0] = 5
    assert inputs(shop, at, source(HOP, is_hop=True)).cause(["orders"]) is None


def test_the_records_of_a_log_are_read_together(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each of up to 20,000 records behind two logs needed a client and a question to the broker."""
    for n in range(40):
        shop.send("orders", {"item": "tea"})
        shop.send(HOP, {}, by=f"0.0.{n}")
        shop.send(NEXT_HOP, {}, by=f"0.0.{n}")
    at, asked, real = shop.send("sales", {}, by="0.0.29"), list[str](), Topics.exists
    monkeypatch.setattr(Topics, "exists", lambda topics, name: (asked.append(name), real(topics, name))[1])
    found, read = inputs(shop, at, source(NEXT_HOP, is_hop=True)), len(shop.read)
    asked.clear()
    assert found.before([(0, 0, n) for n in range(40)], ["orders"]) == [(0, 0, n) for n in range(30)]
    assert (len(shop.read) - read, len(asked)) == (2, 1)


def test_the_newest_records_are_read_that_fit_into_memory(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may write records of a megabyte, of which 10,000 of each partition would be read."""
    for size in (1, 60, 60, 60):
        shop.send("orders", b"x" * size)
    shop.send("orders", b"x" * 500, partition=1)
    at = shop.send("sales", {}, by="0.0.3")
    monkeypatch.setattr(made_of_inputs, "READ_BYTES_MAX", 300)
    monkeypatch.setattr(RegionInputs, "_frame", lambda found, records: [(r.at.partition, r.at.offset) for r in records])
    found = inputs(shop, at, source("orders"))
    found.needs_all_partitions = True
    assert cast(Any, found.read(source("orders"))) == [(0, 2), (0, 3), (1, 0)]
    assert (found.looked_at, found.unread.skipped) == (3, 2)


def test_sums_may_differ_by_rounding_alone() -> None:
    assert same_values({"n": 1, "x": [0.1 + 0.2]}, {"n": 1.0, "x": [0.3]})
    newest = 1_764_547_200_000_000  # microseconds: a second of difference is less than the rounding of a double
    for one, other in (
        (1, True),
        (0.3, 0.31),
        (newest, newest + 1_000_000),
        ({"n": 1}, {"m": 1}),
        ([1], [1, 2]),
        ("1", 1),
        (None, 0),
    ):
        assert not same_values(one, other), (one, other)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "computed again from these records, the result is the same"),
        ({"agrees": False, "deleted": 3}, "don't give this result: 3 records of its inputs were deleted"),
        ({"agrees": False, "not_looked_at": 7}, "7 older ones were not read: see --look"),
        ({"agrees": False}, 'these records don\'t give this result, but [{"n": 2}]'),
        ({"agrees": None}, "the result can't be compared with these records"),
        ({"window": ["00:00", "00:10"]}, 'with item="tea" and a time from 00:00 to before 00:10'),
        ({"rows": 4}, "made of 2 records (4 rows)"),
    ],
)
def test_the_answer_says_whether_the_records_give_the_result(facts: dict[str, Any], text: str) -> None:
    told = {
        "columns": ["item"], "values": ["tea"], "window": None, "count": 2, "rows": 2, "records": [], "before": None,
        "looked_at": 9, "deleted": 0, "not_looked_at": 0, "results": [{"n": 2}], "agrees": True, "note": "", **facts,
    }  # fmt: skip
    origin = {
        "kind": "live", "unit": "sales", "processors": [], "dead_letter": False, "part": [], "checkpoint": None,
        "incarnation": {"number": 1, "opened_at_s": None}, "made_of": told, "not_recomputed": "", "same_key": None,
    }  # fmt: skip
    where = {"topic": "sales", "partition": 0, "offset": 0, "timestamp_ms": 0, "key": None, "value": "", "void": False}
    out = io.StringIO()
    found = {"record": where, "missing": None, "origin": origin}
    Terminal(file=out, width=200).print(origin_tree(found, 200), soft_wrap=True)
    assert text in out.getvalue()
