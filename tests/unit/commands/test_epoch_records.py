"""`falkirk peek` and `falkirk why` on the topic of an `fk.EpochTopic`, on another cluster, without a broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from pyspark.sql.types import StructType

import falkirk as fk
from falkirk.cli import main
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.sinks.epoch_notes import NOTE_KEY, EpochNote, NotedPlaces, topic_of_notes
from falkirk.theory.ids import EpochNumber, LogId, Offset
from falkirk.user_tools.commands import epoch_records, judge_places
from tests.stores import void_range
from tests.unit.commands.told_origins import AWAY, Shop, file_of, made

#: As the command names the topic: the application also writes a topic `reports` on its own cluster.
NAME = "sink:away"
TOPIC = f"{AWAY}/reports"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch)


@pytest.fixture
def file(shop: Shop) -> Path:
    return file_of(shop)


def invoked(file: Path, command: str, *options: str) -> Any:
    return CliRunner().invoke(main, [command, str(file), *options])


def peeked(file: Path) -> list[dict[str, Any]]:
    told = invoked(file, "peek", NAME, "--json")
    assert told.exit_code == 0, told.output
    found: list[dict[str, Any]] = json.loads(told.output)
    return found


def who(file: Path) -> list[Any]:
    """Return for each record of partition 0 the epoch, or why none is known."""
    found = [each for each in peeked(file) if each["partition"] == 0]
    return [each["stamp"][-1] if "stamp" in each else each.get("foreign", each.get("unknown")) for each in found]


def note(
    shop: Shop, epoch: int, *spans: tuple[int, int, int], of: str = "id of reports", places: bool = True,
    is_compacted: bool = True,
) -> None:  # fmt: skip
    """Write the note about an epoch. Args: spans: of partitions 0, 1. places: False: as earlier versions did."""
    there = {p: NotedPlaces(Offset(first), Offset(last), number) for p, (first, last, number) in enumerate(spans)}
    made = EpochNote(
        epoch=EpochNumber(epoch), topic=of, partitions=2, limit_bytes=1000, is_compacted=is_compacted,
        spans=there if places else None,
    )  # fmt: skip
    shop.send(f"{AWAY}/{topic_of_notes(shop.home, 'away')}", made.value(), key=NOTE_KEY)


def test_each_record_names_the_epoch_whose_note_has_its_place(shop: Shop, file: Path) -> None:
    shop.send("reports", {"item": "ours"}, by="0.0.4.2")
    for n in range(6):
        shop.send(TOPIC, {"n": n}, key=b"tea")
    note(shop, 0, (0, 1, 2))
    note(shop, 3, (3, 4, 2))
    foreign = "a place that no epoch of this application has"
    assert who(file) == [0, 0, foreign, 3, 3, foreign]
    assert [json.loads(each["value"])["n"] for each in peeked(file)] == list(range(6))
    assert (peeked(file)[0]["unit"], peeked(file)[0]["key"]) == ("report", "tea")
    shown = invoked(file, "peek", NAME).output
    assert f"{NAME}/0@3" in shown
    assert "epoch 3" in shown
    assert json.loads(invoked(file, "peek", "reports", "--json").output)[0]["stamp"][2] == 4, "the topic of our cluster"


def test_a_record_whose_note_is_gone_is_not_taken_for_a_foreign_one(shop: Shop, file: Path) -> None:
    notes = f"{AWAY}/{topic_of_notes(shop.home, 'away')}"
    for n in range(9):
        shop.send(TOPIC, {"n": n})
    note(shop, 0, (0, 1, 2))
    note(shop, 1, (2, 3, 2), places=False)
    note(shop, 2, (4, 5, 2))
    note(shop, 3, (6, 8, 2))
    old = "the note about epoch 1 does not have the places of its records"
    both = "another program wrote between the records of epoch 3"
    assert who(file) == [0, 0, old, old, 2, 2, both, both, both]
    shop.records[notes][0][:2] = [None, None]
    gone = "the note about its epoch was deleted (the oldest one is about epoch 2)"
    assert who(file)[:6] == [gone] * 4 + [2, 2]
    shop.open[notes, 0] = 3  # the records of epoch 3 are readable before its note
    assert who(file)[4:] == [2, 2] + ["the newest epoch is not complete yet"] * 3
    told = invoked(file, "why", f"{NAME}/0@0")
    assert "EPOCH_UNKNOWN" in told.output


@pytest.mark.parametrize("was_compacted", [True, False])
def test_a_topic_that_was_compacted_is_judged_as_one_that_is(
    was_compacted: bool, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has switched compaction off since. Rows that it deleted are not missing."""
    monkeypatch.setattr(judge_places, "is_compacted", lambda *_: False)
    monkeypatch.setattr(judge_places, "Topics", vars(epoch_records)["Topics"])
    place = Storage(home=shop.home, connection=Connection.of("nowhere:1"))
    to, batch = fk.EpochTopic("reports", key="item", kafka=AWAY), cast(Any, SimpleNamespace(schema=StructType()))
    note(shop, 0, (0, 0, 1), is_compacted=was_compacted)
    note(shop, 1, (1, 1, 1), is_compacted=False)
    found = judge_places.epoch_topic_place(to, "away", batch, place)
    assert (found.is_compacted, found.keys) == (was_compacted, ("item",) if was_compacted else ())
    assert found.name == f"topic reports at {AWAY}"


def test_notes_about_another_topic_of_that_name_do_not_count(shop: Shop, file: Path) -> None:
    shop.send(TOPIC, {})
    note(shop, 0, (0, 0, 1), of="id of the topic before")
    assert who(file) == ["a place that no epoch of this application has"]


def test_epochs_that_a_rollback_made_invalid_are_marked(shop: Shop, file: Path) -> None:
    for n in range(2):
        shop.send(TOPIC, {"n": n})
        note(shop, n, (n, n, 1))
    void_range(shop.home.store, LogId.of_epochs("report"), 0, Offset(1), Offset(2))
    assert [each["void"] for each in peeked(file)] == [False, True]


def test_a_record_is_followed_back_through_its_epoch(shop: Shop, file: Path) -> None:
    shop.send("orders", {"item": "tea"}, partition=1)
    shop.epoch("weights", {"orders": {0: 0, 1: 0}}, {"orders": {0: 0, 1: 1}})
    shop.epoch("report", {"epochs:weights": {0: 0}}, {"epochs:weights": {0: 1}})
    shop.send(TOPIC, {"item": "tea"})
    note(shop, 0, (0, 0, 1))
    told = invoked(file, "why", f"{NAME}/0@0")
    assert told.exit_code == 0, told.output
    assert told.output.startswith(f"{NAME}/0@0  ")
    assert "batch report, epoch 0" in told.output
    assert "orders/1@0" in told.output
    assert invoked(file, "why", "away/0@0").output == told.output, "by the name of the sink"
    foreign = shop.send(TOPIC, {}).removeprefix(TOPIC)
    told = invoked(file, "why", NAME + foreign)
    assert "RECORD_FOREIGN" in told.output


def test_a_record_whose_note_is_damaged_is_not_taken_for_a_foreign_one(shop: Shop, file: Path) -> None:
    notes = f"{AWAY}/{topic_of_notes(shop.home, 'away')}"
    for n in range(6):
        shop.send(TOPIC, {"n": n})
    note(shop, 0, (0, 0, 1))
    shop.send(notes, b"{}", key=NOTE_KEY)
    note(shop, 2, (2, 2, 1))
    damaged = "a note can't be read"
    assert who(file) == [0, damaged, 2, *["a place that no epoch of this application has"] * 3]
    shop.send(notes, b'{"epoch": 3}', key=NOTE_KEY)
    assert who(file)[3:] == [damaged] * 3


def test_a_record_of_an_open_epoch_is_not_foreign_if_the_newest_note_has_no_place_in_its_partition(
    shop: Shop, file: Path
) -> None:
    notes = f"{AWAY}/{topic_of_notes(shop.home, 'away')}"
    for n in range(3):
        shop.send(TOPIC, {"n": n})
    note(shop, 0, (0, 0, 1))
    note(shop, 1)  # its records are in the other partition
    note(shop, 2, (1, 2, 2))
    shop.open[notes, 0] = 2  # the records of epoch 2 are readable before its note
    assert who(file) == [0] + ["the newest epoch is not complete yet"] * 2
    shop.records[notes][0][0] = None
    assert who(file)[1:] == ["the newest epoch is not complete yet"] * 2
