"""`falkirk why`: a result is followed back to the users' records, and each dead end says why it is one."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk.cli import main
from falkirk.errors import FalkirkError
from falkirk.plan.fingerprint import WITH_TIMERS
from falkirk.plan.shape import read_shape
from falkirk.platform.terminal import Terminal
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.live.epochs_read import EpochsRead
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import BatchId, CheckpointNumber, EpochNumber, LogId, Offset
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.records import TopicRecords, key_texts, place_of_text
from falkirk.user_tools.commands.why import origin_tree
from tests.stores import void_range
from tests.unit.commands.told_origins import HELD, HOP, Shop, commit, file_of, made


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch)


def explained(shop: Shop, record: str, *, limit: int = 20, look: int = 1_000) -> dict[str, Any]:
    shape = read_shape(shop.home.path)
    assert shape is not None
    assert shop.app.kafka is not None
    place = Storage(home=shop.home, connection=shop.app.kafka)
    return Origins(shop.app, shape, place, TopicRecords(place), limit=limit, look=look).explain(place_of_text(record))


def refused(shop: Shop, record: str) -> str:
    with pytest.raises(FalkirkError) as caught:
        explained(shop, record)
    return f"{caught.value.condition}: {caught.value}"


def printed(found: dict[str, Any], width: int = 160) -> str:
    out = io.StringIO()
    Terminal(file=out, width=width).print(origin_tree(found, width), soft_wrap=True)
    return out.getvalue()


def name(found: dict[str, Any]) -> str:
    return "{topic}/{partition}@{offset}".format(**found["record"])


def sell(shop: Shop, *items: str) -> list[str]:
    """Send orders of items through the hop; return the results. Each counts the orders of its item."""
    results = []
    for item in items:
        order = shop.send("orders", {"item": item, "n": 1}, partition=1)
        hop = shop.send(HOP, {"item": item, "n": 1}, by=f"0.1.{order.rpartition('@')[2]}")
        results.append(shop.send("sales", {"item": item}, by=f"0.0.{hop.rpartition('@')[2]}", key=item.encode()))
    return results


def test_a_count_comes_from_all_records_of_its_key_through_the_hop(shop: Shop) -> None:
    *_, last = sell(shop, "tea", "jam", "tea", "tea")
    found = explained(shop, last)
    origin = found["origin"]
    assert (origin["kind"], origin["unit"], origin["incarnation"]["number"]) == ("live", "sales", 1)
    assert origin["checkpoint"] is None
    (cause,) = origin["inputs"]
    assert name(cause) == f"{HOP}/0@3"
    assert name(cause["origin"]["inputs"][0]) == "orders/1@3"
    assert cause["origin"]["inputs"][0]["origin"] is None, "the users wrote it"
    same = origin["same_key"]
    assert [name(each) for each in same["records"]] == [f"{HOP}/0@2", f"{HOP}/0@0"]
    assert [name(each["origin"]["inputs"][0]) for each in same["records"]] == ["orders/1@2", "orders/1@0"]
    assert (same["columns"], same["values"], same["looked_at"], same["has_all"]) == (["item"], ["tea"], 3, True)
    assert explained(shop, "sold/0@3") == found, "by the name of the sink"

    commit(shop, "sales", 0, {HOP: {0: 3, 1: 0}})
    commit(shop, "sales", 1, {HOP: {0: 4, 1: 0}})
    point = explained(shop, last)["origin"]["checkpoint"]
    assert (point["number"], point["is_oldest"]) == (1, False)
    text = printed(explained(shop, last))
    assert "live region sales, incarnation 1" in text
    assert "sales: told_origins.py:" in text
    assert "shop.py:12: items.groupBy" in text
    assert 'all 2 earlier records with item="tea" (3 looked at)' in text
    assert "no checkpoint covers it yet" in text, "the hop's"
    assert 'the only earlier record with item="tea" (2 looked at)' in printed(explained(shop, "sales/0@2"))


def test_a_long_history_is_cut_and_says_so(shop: Shop) -> None:
    *_, last = sell(shop, *(["tea", "jam"] * 30), "tea")
    same = explained(shop, last, limit=5)["origin"]["same_key"]
    assert [each["record"]["offset"] for each in same["records"]] == [58, 56, 54, 52, 50]
    assert same["has_all"] is False
    same = explained(shop, last, look=10)["origin"]["same_key"]
    assert (len(same["records"]), same["looked_at"], same["has_all"]) == (5, 10, False)
    assert explained(shop, last, limit=30, look=60)["origin"]["same_key"]["has_all"]
    shop.begins[HOP, 0] = 50
    same = explained(shop, last)["origin"]["same_key"]
    assert (len(same["records"]), same["has_all"]) == (5, False), "older records were deleted"
    assert 'the last 5 earlier records with item="tea"' in printed(explained(shop, last))


def test_invalid_and_foreign_records_of_a_hop_are_no_part_of_a_state(shop: Shop) -> None:
    *_, last = sell(shop, "tea", "tea", "tea")
    void_range(shop.home.store, LogId(HOP), 0, Offset(1), Offset(2))
    shop.send(HOP, {"item": "tea"}, by="0.1.0", forged=True)
    *_, last = sell(shop, "tea")
    same = explained(shop, last)["origin"]["same_key"]
    assert [each["record"]["offset"] for each in same["records"]] == [2, 0]
    assert same["looked_at"] == 4


def test_keys_are_equal_as_spark_reads_them_and_null_is_no_text() -> None:
    def key(value: object) -> object:
        return key_texts({"k": value}, ["k"])

    assert key(1) == key("1") == key(1.0)
    assert key(True) == key("true")
    assert key({"b": 1, "a": [2]}) == key({"a": [2], "b": 1})
    assert key(None) == key_texts({}, ["k"])
    assert len({key(v) for v in (None, "None", "null", "", 0, 0.5, False)}) == 7


def test_a_key_that_steps_compute_is_not_guessed(shop: Shop) -> None:
    file = shop.home.path / "shape.json"
    shape = json.loads(file.read_text())
    for region in shape["regions"]:
        region["keyed_by"] = None
    file.write_text(json.dumps(shape))
    *_, last = sell(shop, "tea", "tea")
    same = explained(shop, last)["origin"]["same_key"]
    assert (same["columns"], same["records"]) == (None, [])
    assert "its steps compute the key" in printed(explained(shop, last))


def test_a_key_may_be_that_of_the_record_itself(shop: Shop) -> None:
    """`metadata=` of a source makes columns of parts of the record, which its value does not have."""
    file = shop.home.path / "shape.json"
    shape = json.loads(file.read_text())
    region = next(r for r in shape["regions"] if r["name"] == "sales-by-item")
    region |= {"keyed_step": "stateful", "keyed_by": ["who"]}
    file.write_text(json.dumps(shape))
    for who in (b"ann", b"bob", None, b"ann"):
        last = shop.send("orders", {"who": "nobody"}, key=who)
    at = shop.send(HOP, {}, by=f"0.0.{last.rpartition('@')[2]}")
    same = explained(shop, at)["origin"]["same_key"]
    assert (same["values"], [name(each) for each in same["records"]]) == (["ann"], ["orders/0@0"])


def changed(shop: Shop, region: str, **facts: object) -> None:
    """Change the recorded facts about a region."""
    file = shop.home.path / "shape.json"
    shape = json.loads(file.read_text())
    next(r for r in shape["regions"] if r["name"] == region).update(facts)
    file.write_text(json.dumps(shape))


def test_the_key_of_a_timer_is_that_of_the_result_and_not_of_the_record_that_moved_the_time(shop: Shop) -> None:
    changed(shop, "sales", keyed_step=WITH_TIMERS)
    sell(shop, "tea", "jam", "tea", "jam")
    at = shop.send("sales", {"item": "tea", "n": 1}, by="0.0.3.0.0")
    same = explained(shop, at)["origin"]["same_key"]
    assert (same["values"], [name(each) for each in same["records"]]) == (["tea"], [f"{HOP}/0@2", f"{HOP}/0@0"])
    assert "the key is in the result" in printed(explained(shop, at))
    at = shop.send("sales", {"n": 1}, by="0.0.3.0.0")
    same = explained(shop, at)["origin"]["same_key"]
    assert (same["columns"], same["records"]) == (None, [])
    assert "a timer may have given it, and the result has no item" in printed(explained(shop, at))


def test_records_of_the_key_of_a_timer_by_the_clock_are_those_until_its_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a clock has no place in the topic of the records, so all partitions are searched."""
    monkeypatch.setattr(RegionAtRest, "checkpoints", lambda region: ())
    shop.app.source("clock", fk.Clock("1 second"))
    clock = shop.app.sources["clock"].topic.topic
    changed(shop, "vouchers", keyed_step=WITH_TIMERS, keyed_by=["item"], others=[clock])
    for n, item in enumerate(("tea", "jam", "tea", "tea", "tea", "tea")):
        shop.send("orders", {"item": item}, partition=n % 2)
    shop.send(clock, {"at": "then"})
    shop.send(clock, {"at": "now"})  # its timestamp is that of the second record in each partition
    at = shop.send(HELD, {"item": "tea"}, by="1.0.1.0.0")
    same = explained(shop, at)["origin"]["same_key"]
    assert [name(each) for each in same["records"]] == ["orders/0@1", "orders/1@1", "orders/0@0"]
    assert (same["looked_at"], same["has_all"]) == (6, True)
    same = explained(shop, at, limit=2)["origin"]["same_key"]
    assert (len(same["records"]), same["has_all"]) == (2, False)


def test_a_result_of_a_lookup_names_the_epoch_of_the_view_that_it_has_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = LogId.of_epochs("rates")
    changed(shop, "sales", views=[rates])
    *_, last = sell(shop, "tea", "tea")
    shop.epoch("rates", {"prices": {0: 0}}, {"prices": {0: 0}})
    notes = EpochsRead("sales", shop.home.store, (rates,))
    notes.note(BatchId(0), {rates: EpochNumber(0)})

    def checkpoints(*ends: int) -> tuple[Checkpoint, ...]:
        read = (OffsetFrontier.before({LogId(HOP): {0: Offset(end), 1: Offset(0)}}) for end in ends)
        return tuple(Checkpoint(number=CheckpointNumber(n), read=r, sent=EMPTY) for n, r in enumerate(read, -1))

    def reads(*ends: int) -> list[dict[str, Any]]:
        monkeypatch.setattr(RegionAtRest, "checkpoints", lambda region: checkpoints(*ends))
        found: list[dict[str, Any]] = explained(shop, last)["origin"]["reads"]
        return found

    (read,) = reads(0, 2)
    assert (read["kind"], read["epoch"], read["epochs"]) == ("view", 0, [0])
    assert read["origins"][0]["epoch"]["number"] == 0
    assert "read the view of rates: its epoch 0" in printed(explained(shop, last))
    notes.note(BatchId(0), {rates: EpochNumber(1)})
    (read,) = reads(0, 2)
    assert (read["epoch"], read["epochs"]) == (None, [0, 1])
    assert "read the view of rates: its epoch 0 or 1" in printed(explained(shop, last))
    assert reads(2) == [], "the oldest checkpoint covers it: the notes of the time before it were deleted"
    notes.note(BatchId(1), {rates: EpochNumber(5)})
    assert [read["epochs"] for read in reads(0, 0)] == [[1, 5]], "no checkpoint covers it yet"
    assert [read["epochs"] for read in reads(0, 2, 4)] == [[0, 1]]


def test_a_shape_of_an_earlier_version_has_no_keys(shop: Shop) -> None:
    file = shop.home.path / "shape.json"
    shape = json.loads(file.read_text())
    for region in shape["regions"]:
        for new in ("keyed_step", "keyed_by", "filters", "steps"):
            del region[new]
    file.write_text(json.dumps(shape))
    *_, last = sell(shop, "tea", "tea")
    origin = explained(shop, last)["origin"]
    assert (origin["same_key"], origin["steps"], name(origin["inputs"][0])) == (None, [], f"{HOP}/0@1")


def test_a_result_of_a_window_has_the_key_and_not_the_record_that_ended_it(shop: Shop) -> None:
    changed(shop, "sales", keyed_step="windows", chain=["dropDuplicates", "windows"])
    sell(shop, "tea", "jam")
    at = shop.send("sales", {"item": "tea", "n": 1}, by="0.0.1.0")
    same = explained(shop, at)["origin"]["same_key"]
    assert (same["values"], [name(each) for each in same["records"]]) == (["tea"], [f"{HOP}/0@0"])
    changed(shop, "sales", chain=["windows", "stateful"])  # its function may return another value in the column
    assert explained(shop, at)["origin"]["same_key"]["records"] == []
    assert "a record of another key may have ended the window before it" in printed(explained(shop, at))


def test_a_pair_comes_from_both_of_its_records(shop: Shop) -> None:
    shop.send("orders", {"item": "tea"}, partition=1)
    shop.send("prices", {"item": "tea", "price": 4})
    pair, alone = shop.send("priced", {}, by="0.1.0.1.0"), shop.send("priced", {}, by="0.1.0.0.0")
    assert [name(each) for each in explained(shop, pair)["origin"]["inputs"]] == ["orders/1@0", "prices/0@0"]
    assert explained(shop, pair)["origin"]["part"] == []
    assert [name(each) for each in explained(shop, alone)["origin"]["inputs"]] == ["orders/1@0"]


def test_a_released_result_is_found_in_its_held_log_while_that_has_it(shop: Shop) -> None:
    order = shop.send("orders", {"item": "tea"})
    shop.send(HELD, {"code": "x"}, by="0.0.0")
    at = shop.send("vouchers", {"code": "x"}, by="0.0.0")
    origin = explained(shop, at)["origin"]
    assert (origin["kind"], origin["held"], name(origin["inputs"][0])) == ("copy", HELD, f"{HELD}/0@0")
    assert name(origin["inputs"][0]["origin"]["inputs"][0]) == order
    shop.begins[HELD, 0] = 1
    (gone,) = explained(shop, at)["origin"]["inputs"]
    assert gone["missing"] == "it was deleted: the partition now begins at 1"
    assert f"{HELD}/0@0  is not there: it was deleted" in printed(explained(shop, at))


def test_a_record_that_the_application_deletes_meanwhile_was_deleted(shop: Shop) -> None:
    """It reads its held log no more. No retention has to be longer."""
    for n in range(3):
        shop.send("orders", {"item": "tea"})
        shop.send(HELD, {"code": "x"}, by=f"0.0.{n}")
    at = shop.send("vouchers", {"code": "x"}, by="0.0.0")
    shop.deleted_at_next_read[HELD] = 1
    (gone,) = explained(shop, at)["origin"]["inputs"]
    assert gone["missing"] == "it was deleted: the partition now begins at 1"


def test_a_result_of_a_batch_comes_from_its_epoch_with_files_views_and_state(shop: Shop, tmp_path: Path) -> None:
    for number in range(3):
        shop.send("orders", {"item": ("tea", "jam", "tea")[number], "n": number})
    shop.home.store.record_decision("files", "stock", 0, [["a.json", 1, 1], ["b.json", 1, 1]])
    shop.epoch("rates", {"prices": {0: 0}}, {"prices": {0: 2}})
    shop.epoch("weights", {}, {"orders": {0: 1}, "files:stock": {0: 0}})
    shop.epoch(
        "weights", {"orders": {0: 1}, "files:stock": {0: 0}}, {"orders": {0: 3, 1: 0}, "files:stock": {0: 2}}
    )  # fmt: skip
    shop.epoch("report", {}, {"epochs:weights": {0: 1}}, views={"epochs:rates": 0}, saved=True)
    shop.epoch("report", {"epochs:weights": {0: 1}}, {"epochs:weights": {0: 2}}, views={"epochs:rates": 0})
    at = shop.send("reports", {"item": "tea", "n": 9}, by="0.0.1.5", key=b"tea")
    origin = explained(shop, at)["origin"]
    assert (origin["kind"], origin["unit"], origin["epoch"]["number"], origin["row"]) == ("batch", "report", 1, 5)
    assert origin["state"] == {"after_epoch": 0, "saved_at_epoch": 0}
    read, view = origin["reads"]
    assert (view["kind"], view["epoch"], view["origins"][0]["unit"]) == ("view", 0, "rates")
    assert view["origins"][0]["reads"][0]["count"] == 2
    assert (read["kind"], read["epochs"], read["origins"][0]["unit"]) == ("epochs", [1, 2], "weights")
    files, orders = read["origins"][0]["reads"]
    assert (files["kind"], files["files"]) == ("files", ["a.json", "b.json"])
    assert (orders["ranges"], orders["count"], orders["alike"]) == ({"0": [1, 3]}, 2, {"item": "tea"})
    assert [name(each) for each in orders["records"]] == ["orders/0@2"], "that of jam is another key"
    text = printed(explained(shop, at))
    for part in (
        "batch report, epoch 1, row 5; the epoch has 1 result", "it has read the state after epoch 0",
        "read epoch 1 of weights",
        "read the view of rates: its epoch 0", "read 2 records: orders/0@1 to 2. Those with item=\"tea\" (2 looked at)",
        "a.json, b.json",
    ):  # fmt: skip
        assert part in text, text

    found = explained(shop, "weights@1")
    assert (found["record"], found["origin"]["unit"], found["origin"]["epoch"]["number"]) == (None, "weights", 1)
    assert [name(each) for each in found["origin"]["reads"][1]["records"]] == ["orders/0@1", "orders/0@2"]
    assert printed(found).startswith("weights@1\n└── batch weights, epoch 1; the epoch has 1 result\n")
    assert refused(shop, "weights@2").startswith("EPOCH_MISSING: batch 'weights' has no epoch 2 yet: the next one is 2")
    assert refused(shop, "sales@2").startswith("BATCH_UNKNOWN")

    shop.begins["orders", 0] = 3
    files, orders = explained(shop, at)["origin"]["reads"][0]["origins"][0]["reads"]
    assert (orders["records"], orders["note"]) == ([], "these records were deleted")


def test_an_epoch_that_the_home_forgot_or_a_rollback_voided_says_so(shop: Shop) -> None:
    for number in range(3):
        shop.epoch("report", {}, {"epochs:weights": {0: number}})
    old, void = (shop.send("reports", {}, by=f"0.0.{number}.0") for number in (0, 2))
    shop.home.store.forget_epochs("epoch", "report", EpochNumber(1))
    void_range(shop.home.store, LogId.of_epochs("report"), 0, Offset(2), Offset(3))
    assert "has deleted the record of this epoch; the oldest that it keeps is 1" in printed(explained(shop, old))
    assert "a rollback made this epoch invalid" in printed(explained(shop, void))


def test_what_has_no_origin_is_refused_with_the_reason(shop: Shop) -> None:
    sell(shop, "tea")
    shop.send("sales", {"item": "tea"})
    shop.send("sales", {"item": "tea"}, by="0.0.0", forged=True)
    shop.mark("sales")
    assert refused(shop, "sales/0@1").startswith("RECORD_FOREIGN: this application did not write the record sales/0@1")
    assert "no header of Falkirk" in refused(shop, "sales/0@1")
    assert "a tag that does not fit" in refused(shop, "sales/0@2")
    assert "RECORD_MISSING" in refused(shop, "sales/0@3")
    assert "a marker of a transaction" in refused(shop, "sales/0@3")
    assert "the partition ends at 4 for readers" in refused(shop, "sales/0@4")
    assert "the topic has no partition 9" in refused(shop, "sales/9@0")
    assert "the topic does not exist any more" in refused(shop, "vouchers/0@0")
    shop.begins["sales", 0] = 1
    assert refused(shop, "sales/0@0").startswith("RECORD_DELETED: the record sales/0@0 was deleted: partition 0 now")
    assert refused(shop, "orders/0@0").startswith(
        "TOPIC_NOT_OURS: application 'shop' does not write 'orders'. It writes "
    )
    assert refused(shop, "sales").startswith("RECORD_NAME_INVALID")
    assert refused(shop, "sales@x").startswith("RECORD_NAME_INVALID")
    assert refused(shop, "sales/0@-1").startswith("RECORD_NAME_INVALID")


def test_a_dead_letter_has_an_origin_too(shop: Shop) -> None:
    bad = shop.send("orders", b"no json")
    at = shop.send("sales-by-item-dead", {"reason": "does not fit"}, by="0.0.0")
    origin = explained(shop, at)["origin"]
    assert (origin["dead_letter"], name(origin["inputs"][0])) == (True, bad)
    assert "a dead letter of live region sales-by-item" in printed(explained(shop, at))


def test_values_of_others_are_shown_on_one_line_without_control_characters(shop: Shop) -> None:
    order = shop.send("orders", b"\x1b[2J\nred\x07" + b"x" * 5_000, key=b"\xff\n")
    at = shop.send(HOP, {"item": "tea"}, by=f"0.0.{order.rpartition('@')[2]}")
    text = printed(explained(shop, at), width=100)
    assert "\x1b" not in text
    assert "[2J\\nred" in text
    assert max(map(len, text.splitlines())) <= 110


def test_the_command_works_while_the_application_runs_and_prints_json(shop: Shop) -> None:
    """The fixture holds the lock of the home, as a running application does."""
    *_, last = sell(shop, "tea", "tea")
    file = file_of(shop)
    told = CliRunner().invoke(main, ["why", str(file), last, "--no-recompute", "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert json.loads(told.output) == json.loads(json.dumps(explained(shop, last)))
    told = CliRunner().invoke(main, ["why", str(file), last, "--no-recompute"], catch_exceptions=False)
    assert told.output.startswith("sales/0@1  2026-11-")
    told = CliRunner().invoke(main, ["why", str(file), "sales/0@99"])
    assert told.exit_code == 1
