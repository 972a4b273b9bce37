"""A home of an earlier version, which signed nothing: its records are believed up to where it ended, and no further."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sql
from click.testing import CliRunner

from falkirk.cli import main
from falkirk.errors import LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.signing import tag_of
from falkirk.recovery.decision_store import RegionRecord
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.spark.context import Context, Storage
from falkirk.runtime.spark.outputs import last_records
from tests.integration.live import Wire

VALUE = b"{}"


@pytest.fixture
def old(home: Path) -> Iterator[Home]:
    """A home in which an earlier version has run."""
    with open_home(home, "shop") as made:
        made.store.create_region("sales", RegionRecord(fingerprint={}, start_offsets={}, partitions={}), {})
    engine = sql.create_engine(f"sqlite:///{home}/decisions.db")
    with engine.begin() as db:
        assert db.execute(sql.text("DELETE FROM decisions WHERE kind = 'signing'")).rowcount == 1
    engine.dispose()
    with open_home(home, "shop") as opened:
        assert not opened.store.signing_key().since_birth
        yield opened


def put(wire: Wire, topic: str, *headers: bytes | None, partition: int = 0) -> None:
    for header in headers:
        named: list[tuple[str, str | bytes | None]] = [] if header is None else [("falkirk", header)]
        wire.producer.produce(topic, VALUE, partition=partition, headers=named)
        assert wire.producer.flush(30) == 0


def test_records_without_a_tag_are_believed_up_to_the_first_start(old: Home, wire: Wire) -> None:
    sink = wire.topic("sink")
    place = cast(Any, Context)(home=old, connection=Connection.of(wire.bootstrap), session=None, state_partitions=1)

    def last() -> dict[int, int]:
        return {p: stamp.offset for p, stamp in last_records(place, sink, wire.topics.end_positions(sink))}

    old.store.record_decision("sink", f"beginning of {sink}", 0, {"0": 0, "1": 0})
    put(wire, sink, *[f"{old.identity}/1/0.0.{n}/0".encode() for n in (3, 4)], *[None] * 20)
    assert last() == {0: 4}
    assert place.foreign[sink].count == 20
    put(wire, sink, f"{old.identity}/1/0.0.999999999/0".encode())
    put(wire, sink, f"{old.identity}/1/0.1.999999999/0".encode(), partition=1)
    assert last() == {0: 4}, "from its first start on this version signs"
    text = f"{old.identity}/1/0.0.5/0/".encode()
    put(wire, sink, text + tag_of(place.signing_key.of(sink, 1), text, 0, None, VALUE).encode())
    assert last() == {0: 5}


def test_a_tag_that_may_be_of_a_newer_copy_is_refused_until_it_is_disowned(
    old: Home, wire: Wire, home: Path, tmp_path: Path
) -> None:
    sink = wire.topic("sink", 1)
    old.store.record_decision("sink", f"beginning of {sink}", 0, {"0": 0})
    put(wire, sink, None, f"{old.identity}/1/0.0.7/0/".encode() + b"0" * 24)

    def find() -> object:
        place = Storage(home=old, connection=Connection.of(wire.bootstrap))
        return list(last_records(place, sink, wire.topics.end_positions(sink)))

    with pytest.raises(LogError) as refused:
        find()
    assert refused.value.condition == "FOREIGN_WRITER"
    told = refused.value.parameters
    assert (told["topic"], told["partition"], told["offset"]) == (sink, 0, 1)
    file = tmp_path / "shop.py"
    file.write_text(f"import falkirk as fk\napp = fk.App('shop', home={str(home)!r})\n")
    done = CliRunner().invoke(main, ["disown", str(file), sink, "--kafka", wire.bootstrap], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert find() == []
    put(wire, sink, f"{old.identity}/1/0.0.8/0/".encode() + b"0" * 24)
    with pytest.raises(LogError):
        find()
