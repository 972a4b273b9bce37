"""How many batches Spark keeps for a history: from the plan to the setting with which a query starts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.recovery.decision_store import RegionRecord, Store, TailRecord
from falkirk.runtime.spark.live import at_rest, checkpoint_files, query, region
from falkirk.runtime.spark.live.query import LiveQuery
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.supervision import host
from falkirk.runtime.supervision.host import Host
from falkirk.spark_setup.spark import RETAIN
from falkirk.theory.history import History
from falkirk.theory.ids import BatchId, CheckpointNumber, Incarnation
from tests.clock import MovedClock

#: More than Spark keeps by itself.
RETAINED = 777


def test_a_host_gives_each_region_the_number_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict[str, Any]()

    def made(region: Any, context: Any, *, retain: int = 0, on_progress: object, views: object) -> Any:
        given[region.name] = retain
        return SimpleNamespace(region=region)

    def retained_of(region: Any, history: History) -> int:
        assert history == History(checkpoints=500)
        return RETAINED + len(region.name)

    monkeypatch.setattr(host, "LiveRegion", made)
    monkeypatch.setattr(host, "batches_of", lambda *arguments: SimpleNamespace(regions={}))
    for name in ("Executors", "Losses", "ForeignWatch", "judges_of", "Clocks", "HeldViews"):
        monkeypatch.setattr(
            host, name, lambda *arguments: SimpleNamespace(epochs=dict, missing=tuple, are_loading=bool)
        )
    regions = [SimpleNamespace(name=name, where=None) for name in ("a", "bb")]
    plan = SimpleNamespace(regions=regions, batches=(), clocks=(), retained_of=retained_of)
    context = SimpleNamespace(session=None, home=SimpleNamespace(path=Path(), store=None))
    Host(cast(Any, plan), cast(Any, context), history=History(checkpoints=500))
    assert given == {"a": RETAINED + 1, "bb": RETAINED + 2}


def test_a_region_starts_its_query_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It also sets checkpoints aside before Spark deletes them, which depends on the same number."""
    made, aside = list[int](), list[int]()

    def began(**given: Any) -> Any:
        made.append(given["retain"])
        return SimpleNamespace(start=lambda *arguments: "query")

    monkeypatch.setattr(region, "LiveQuery", began)
    monkeypatch.setattr(region, "Losses", lambda session: None)
    monkeypatch.setattr(region, "writes_elsewhere", lambda session: False)
    monkeypatch.setattr(LiveRegion, "_fence_writers", lambda self: None)
    monkeypatch.setattr(region, "RegionLanes", lambda region, context: None)
    monkeypatch.setattr(at_rest, "Outputs", lambda logs, place: None)
    monkeypatch.setattr(checkpoint_files, "KeptCheckpoints", lambda folder, *topics: kept)
    kept = SimpleNamespace(set_aside=lambda batches, newest, retain: aside.append(retain))
    home = SimpleNamespace(store=None, checkpoint=lambda name: Path(), is_shared=False)
    logs = SimpleNamespace(name="r", sources=(), views=())
    of = SimpleNamespace(name="r", logs=lambda: logs, twins=False)
    live = LiveRegion(
        cast(Any, of), cast(Any, SimpleNamespace(home=home, session=None, clock=MovedClock())), retain=RETAINED
    )
    opening = SimpleNamespace(release=None, skips=())
    live._run(cast(Any, opening), cast(Any, SimpleNamespace(start_offsets={})), {})
    live.keep_only([])
    assert (made, aside) == ([RETAINED], [RETAINED])


@pytest.mark.parametrize(("of_session", "used"), [("100", RETAINED), (None, RETAINED), ("2000", 2000)])
def test_spark_reads_it_when_the_query_starts(
    of_session: str | None, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query of the session that starts later has the session's own number again."""
    conf: Any = {RETAIN: of_session}
    conf = SimpleNamespace(get=conf.get, set=conf.__setitem__, all=conf)
    began = list[int]()
    writer: Any = SimpleNamespace(queryName=lambda name: None)
    monkeypatch.setattr(LiveQuery, "_rows", lambda *arguments: None)
    monkeypatch.setattr(LiveQuery, "_writer", lambda *arguments: writer)
    monkeypatch.setattr(query, "begin_query", lambda *arguments: began.append(int(conf.all[RETAIN])))
    context = SimpleNamespace(session=SimpleNamespace(conf=conf), home=SimpleNamespace(identity="deadbeef"))
    live = LiveQuery(
        region=cast(Any, SimpleNamespace(name="r", interval_s=1.0)), context=cast(Any, context), retain=RETAINED,
        release=cast(Any, None), checkpoint=Path(), lanes=cast(Any, None), losses=cast(Any, None),
    )  # fmt: skip
    live.start({}, {}, ())
    assert began == [used]
    assert int(conf.all[RETAIN]) == int(of_session or 100)


def test_a_region_that_may_delete_nothing_forgets_what_spark_may_delete() -> None:
    """Otherwise a rollback could choose a checkpoint that Spark has deleted."""
    live, aside = LiveRegion.__new__(LiveRegion), list[Any]()
    live.retain, live._only, live._tails_of = RETAINED, (), ()
    live.logs, live._store = (
        cast(Any, SimpleNamespace(name="r")),
        cast(Any, SimpleNamespace(keep_tails=lambda *_: None)),
    )
    live.files = cast(
        Any, SimpleNamespace(set_aside=lambda batches, newest, retain: aside.append((batches, newest, retain)))
    )
    live._checkpoints = tuple(cast(Any, SimpleNamespace(number=n)) for n in (1, 2, 4, 6, 8))
    live.set_aside([CheckpointNumber(1), CheckpointNumber(4)])
    assert aside == [([1, 4], 8, RETAINED)]
    assert [each.number for each in live._checkpoints] == [1, 4, 6, 8]
    before = live._checkpoints
    live.set_aside([CheckpointNumber(1), CheckpointNumber(4)])
    assert live._checkpoints is before, "others compare it by identity"


def test_positions_of_outputs_do_not_accumulate_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit adds one, and each turn with a new checkpoint reads all of them."""
    store.create_region("r", RegionRecord(fingerprint={}, start_offsets={}, partitions={}), {})
    live, asked, keep = LiveRegion.__new__(LiveRegion), list[Any](), store.keep_tails
    live.retain, live._only, live._tails_of, live._checkpoints, live._store = RETAINED, (), (), (), store
    live.logs = cast(Any, SimpleNamespace(name="r"))
    live.files = cast(Any, SimpleNamespace(set_aside=lambda *batches, **named: None))

    def keep_tails(name: str, batches: Any) -> None:
        asked.append(batches)
        keep(name, batches)

    monkeypatch.setattr(store, "keep_tails", keep_tails)
    for number in range(20):
        record = TailRecord(valid_from_commit=BatchId(number), incarnation=Incarnation(1), positions={})
        store.observe_tail("r", record)
        for _ in range(2):
            live.set_aside([CheckpointNumber(3), CheckpointNumber(max(3, number - 2))])
    assert [each.valid_from_commit for each in store.tails("r")] == [-1, 3, 17, 18, 19]
    assert len(asked) == 15, "once for each new checkpoint that is kept"
