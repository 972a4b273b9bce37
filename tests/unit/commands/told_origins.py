"""A recorded application for `falkirk why` and `falkirk peek`: its home is real, its topics are lists."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors.conditions.kafka_client import RANGE_EXPIRED
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import LogRecord
from falkirk.kafka_client.signing import tag_of
from falkirk.plan.region import BatchLogs, RegionLogs
from falkirk.plan.shape import Shape
from falkirk.recovery.decision_store import RegionRecord
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.protocol.layout import Layout, Stage, TimeDomain
from falkirk.runtime.spark import context
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.sinks import epoch_notes
from falkirk.theory.ids import EpochNumber, LogId, Offset
from falkirk.user_tools.commands import epoch_records
from falkirk.user_tools.commands import records as module
from tests.support import on_disk

AVRO = '{"type": "record", "name": "voucher", "fields": [{"name": "item", "type": "string"}]}'
HOP, HELD = "falkirk.shop.hop", "falkirk.shop.held"
#: Another cluster. The names of its topics in `Shop.records` begin with its address.
AWAY = "away:1"


def application(home: Path) -> fk.App:
    app = fk.App("shop", home=home, kafka="nowhere:1")
    app.source("orders", fk.Kafka("orders", schema="item STRING, n INT", metadata={"key": "who"}))
    app.source("prices", fk.Kafka("prices", schema="item STRING, price INT"))
    app.source("stock", fk.Files(str(home.parent / "stock"), schema="item STRING"))

    @app.stream(fk.Ephemeral())
    def items(orders: fk.Stream) -> fk.Stream:
        return orders

    @app.stream(fk.Lazy())
    def sales(items: fk.Stream) -> fk.Stream:
        return items.groupBy("item").count()

    @app.batch(rows=3)
    def weights(orders: Any, stock: Any) -> Any:
        return orders

    @app.batch(rows=1, state="item STRING, n INT")
    def report(weights: Any, report: Any) -> Any:
        return weights

    app.sink("sold", sales, fk.Kafka("sales", key="item"))
    app.sink("vouched", items, fk.Kafka("vouchers", format="avro", schema=AVRO))
    app.sink("reports", report, fk.Kafka("reports", key="item"))
    app.sink("away", report, fk.EpochTopic("reports", key="item", kafka=AWAY))
    app.sink("weighed", weights, fk.Files(str(home.parent / "weighed")))
    return app


def shape() -> Shape:
    """Return the shape of the application: `sales` reads a hop, `vouchers` is released from a held log."""
    live = {
        "sales-by-item": ("orders", HOP), "sales": (HOP, "sales"), "vouchers": ("orders", HELD),
        "priced": ("orders", "priced"),
    }  # fmt: skip
    stages = [Stage(name=name, inputs=(LogId(a),), output=LogId(b)) for name, (a, b) in live.items()]
    weights, report = LogId.of_epochs("weights"), LogId.of_epochs("report")
    view = LogId.of_epochs("rates")
    stages += [
        Stage(
            name="weights", inputs=(LogId("orders"), LogId.of_files("stock")), output=weights, times=TimeDomain.EPOCHS
        ),
        Stage(name="rates", inputs=(LogId("prices"),), output=view, times=TimeDomain.EPOCHS),
        Stage(name="report", inputs=(weights, view), output=report, views=(view,), times=TimeDomain.EPOCHS),
    ]  # fmt: skip
    more: dict[str, dict[str, Any]] = {
        "sales": {"keyed_step": "count", "keyed_by": ("item",), "steps": ("shop.py:12: items.groupBy",)},
        "priced": {"joined": (LogId("prices"),), "keyed_step": "timedJoin"},
    }
    regions = tuple(
        RegionLogs(
            name=name, source=LogId(source), output=LogId(output), dead_letters=LogId(f"{name}-dead"), repeats=False,
            **more.get(name, {}),
        )
        for name, (source, output) in live.items()
    )  # fmt: skip
    batches = (
        BatchLogs(
            name="weights", log=weights, topics=(LogId("orders"),), files=(LogId.of_files("stock"),),
            sinks=("weighed",), dead_letters=LogId("weights-dead"),
        ),
        BatchLogs(name="rates", log=view, topics=(LogId("prices"),), sinks=(), dead_letters=None),
        BatchLogs(name="report", log=report, topics=(), sinks=("reports", "away"), dead_letters=None),
    )  # fmt: skip
    logs = {log for stage in stages for log in (*stage.inputs, stage.output)} | {LogId("vouchers")}
    held = {LogId(HELD): "vouchers", report: "sinks of report", weights: "sinks of weights"}
    return Shape(
        layout=Layout(stages={s.name: s for s in stages}, partitions=dict.fromkeys(sorted(logs), 2), held=held),
        regions=regions,
        batches=batches,
        processors=dict[str, tuple[str, ...]]({"sales-by-item": ("items",)})
        | {name: (name,) for name in ("sales", "vouchers", "priced")}
        | {b.name: (b.name,) for b in batches},
    )


@dataclass
class Shop:
    """Attributes: records: of each topic and partition, from offset 0; None: a marker. begins: what was deleted."""

    app: fk.App
    home: Home
    records: dict[str, dict[int, list[LogRecord | None]]] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Where the records of open transactions begin.
    open: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Where partition 0 of a topic begins from the next read on: the application deletes records meanwhile.
    deleted_at_next_read: dict[str, int] = field(default_factory=dict)
    #: The numbers of records that were read, for each range.
    read: list[int] = field(default_factory=list)

    def send(
        self, topic: str, value: object, *, partition: int = 0, by: str | None = None, incarnation: int = 1,
        key: bytes | None = None, forged: bool = False,
    ) -> str:  # fmt: skip
        """Append a record; return its name. Args: by: the stamp of its header."""
        part = self.records.setdefault(topic, {0: [], 1: []})[partition]
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        header = None
        if by is not None:
            text = f"{self.home.identity}/{incarnation}/{by}/0/".encode()
            signing = self.home.store.signing_key().of(topic, str(incarnation))
            tag = tag_of(signing, text, partition, key, b"other" if forged else raw)
            header = text + tag.encode()
        offset = Offset(len(part))
        part.append(
            LogRecord(
                partition=partition, offset=offset, timestamp_ms=1_795_000_000_000 + offset, key=key, value=raw,
                raw_header=header,
            )
        )  # fmt: skip
        return f"{topic}/{partition}@{offset}"

    def mark(self, topic: str) -> None:
        """Append a marker of a transaction."""
        self.records.setdefault(topic, {0: [], 1: []})[0].append(None)

    def epoch(
        self, batch: str, first: Mapping[str, Mapping[int, int]], last: Mapping[str, Mapping[int, int]], *,
        views: Mapping[str, int] | None = None, saved: bool = False,
    ) -> EpochNumber:  # fmt: skip
        """Decide and complete an epoch."""
        log = EpochLog(LogId.of_epochs(batch), batch, self.home.data_of(batch), self.home.store)
        at = [{LogId(t): {p: Offset(o) for p, o in ps.items()} for t, ps in each.items()} for each in (first, last)]
        number = log.decide(at[0], at[1], {LogId(v): EpochNumber(n) for v, n in (views or {}).items()}, 0.0)
        folder = log.new_folder(number)
        on_disk(log.path(folder)).mkdir(parents=True)
        log.record(number, folder=folder, rows=1, dead=0, state=folder if saved else None, saved=saved)
        return number


class Topics:
    """The topics of a shop."""

    shop: Shop

    def __init__(self, connection: Connection) -> None:
        self.at = at(connection)

    def identity(self, topic: str) -> str:
        return f"id of {topic}"

    def expect(self, topic: str, identity: str) -> None:
        pass

    def exists(self, topic: str) -> bool:
        return self.at + topic in self.shop.records

    def first_positions(self, topic: str) -> dict[int, Offset]:
        topic = self.at + topic
        parts = self.shop.records.get(topic, {0: [], 1: []})
        return {p: Offset(self.shop.begins.get((topic, p), 0)) for p in parts}

    def readable_positions(self, topic: str) -> dict[int, Offset]:
        ends = self.end_positions(topic)
        return {p: Offset(self.shop.open.get((self.at + topic, p), end)) for p, end in ends.items()}

    def end_positions(self, topic: str) -> dict[int, Offset]:
        parts = self.shop.records.get(self.at + topic, {0: [], 1: []})
        return {p: Offset(len(records)) for p, records in parts.items()}


def at(connection: Any) -> str:
    """Return the beginning of the names of a cluster's topics."""
    return f"{AWAY}/" if Connection.of(connection).bootstrap == AWAY else ""


def file_of(shop: Shop) -> Path:
    """Write the file with a shop's application, for commands."""
    file = shop.home.path.parent / "shop.py"
    file.write_text(
        "from pathlib import Path\nfrom tests.unit.commands.told_origins import application\n\n"
        f"app = application(Path({str(shop.home.path)!r}))\n"
    )
    return file


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Yield a shop that has run, and does not run now."""
    app = application(folder / "home")
    with open_home(folder / "home", "shop") as home:
        shop = Shop(app, home)
        shape().write(home.path)
        for region in ("sales-by-item", "sales", "vouchers", "priced", "weights", "rates", "report"):
            sources = {r.name: r.sources for r in shape().regions}.get(region, ())
            state = {"state": "item, n"} if region == "report" else {}
            start = {source: {0: Offset(0), 1: Offset(0)} for source in sources}
            home.store.create_region(
                region, RegionRecord(fingerprint=state, start_offsets=start, partitions={}), {}
            )  # fmt: skip
            home.store.open_incarnation(region, -1)  # type: ignore[arg-type]  # the initial state

        def read_range(
            connection: Any, topic: str, first: Mapping[int, int], last: Mapping[int, int], **more: object
        ) -> Iterator[LogRecord]:
            topic = at(connection) + topic
            if topic in shop.deleted_at_next_read:
                shop.begins[topic, 0] = shop.deleted_at_next_read.pop(topic)
            for p in last:
                if first[p] < min(last[p], shop.begins.get((topic, p), 0)):
                    raise RANGE_EXPIRED.error(where=topic, topic=topic, partition=p)
                part = shop.records[topic][p][first[p] : last[p]]
                shop.read.append(len(part))
                yield from (record for record in part if record is not None)

        shops = type("ShopTopics", (Topics,), {"shop": shop})
        monkeypatch.setattr(context, "Topics", shops)
        for each in (module, epoch_notes):
            monkeypatch.setattr(each, "read_range", read_range)
        monkeypatch.setattr(epoch_records, "Topics", shops)
        yield shop


def commit(shop: Shop, region: str, number: int, ends: Mapping[str, Mapping[int, int]]) -> None:
    """Write a checkpoint of a live region as Spark does: it covers its sources up to `ends`."""
    folder = shop.home.checkpoint(region)
    for name in ("commits", "offsets"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({t: {str(p): o for p, o in ps.items()}}) for t, ps in ends.items()]
    (folder / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))
    (folder / "commits" / str(number)).write_text('v2\n{"nextBatchWatermarkMs": 0}')
