"""An older copy of a home, of which not all sinks show it at once, and what it must not do until all were compared."""

import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from falkirk.errors import FalkirkError, HomeError, LogError, SparkError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import RegionRecord, Store, TailRecord
from falkirk.runtime.spark.application.batches import Batches
from falkirk.runtime.spark.epochs.failures import passes
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.outputs import Outputs
from falkirk.runtime.spark.sinks.release import EpochReleaser
from falkirk.runtime.spark.sinks.target import Target
from falkirk.runtime.spark.sinks.topic import TopicTarget
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.supervised import KEEPS, statuses
from falkirk.runtime.supervision.supervised_batch import SupervisedBatch
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.theory.frontier import EMPTY
from falkirk.theory.ids import BatchId, EpochNumber, LogId
from tests.support import wait_until
from tests.unit.kafka import test_sink_ages as ages
from tests.unit.kafka.test_sink_ages import EPOCHS, LOG, SOURCE, Sink, World

world = ages.world
FAILED, FAILED_FOR_GOOD = SparkError("SINK_EXPIRED", "no"), SparkError("FUNCTION_FAILED", "no")


class Topic(TopicTarget):
    """The topic of a direct batch. Like the real one, it drops the rows of epochs whose numbers it knows."""

    def __init__(self, has: int) -> None:
        self.has, self.is_away = has, False
        self.sent, self.dropped = list[int](), list[int]()

    def visible(self) -> EpochNumber:
        if self.is_away:
            raise SparkError("RELEASE_FAILED", "somebody has a transaction open there")
        return EpochNumber(self.has)

    def deliver_computed(self, epoch: EpochNumber, rows: Any, *, few: bool = False) -> None:
        (self.dropped if epoch < self.has else self.sent).append(epoch)
        self.has = max(self.has, epoch + 1)


class Direct:
    """A home with a direct batch, its topic and its dead letters. The home has fewer epochs if it is an older copy."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._path, store = path, Store(path.with_name("decisions.db"))
        store.create_region("b", RegionRecord(fingerprint={}, start_offsets={SOURCE: {0: 0}}, partitions={}), {})
        self._epochs = EpochLog(LOG, "b", LocalData(path), store)
        for _ in range(EPOCHS):
            self._record(self._decide())
        self.topic, self.letters = Topic(EPOCHS), Sink()
        letters = cast(Target, self.letters)
        self.releaser = EpochReleaser(self._epochs, {"out": self.topic}, letters, StructType())

    def _decide(self) -> EpochNumber:
        return self._epochs.decide({SOURCE: {0: 0}}, {SOURCE: {0: 0}}, {}, 0.0, may_be_out=True)

    def _record(self, number: EpochNumber) -> None:
        (self._path / f"{number}-aa").mkdir()
        self._epochs.record(number, folder=f"{number}-aa", rows=1, dead=0, state=None, saved=True, direct=True)

    def start(self) -> None:
        self.releaser.remains(EpochNumber(EPOCHS))
        self.releaser.visible()

    def run_epoch(self) -> None:
        waiting = [e.number for e in self._epochs.epochs() if not e.is_complete]
        number = waiting[0] if waiting else self._decide()
        self.releaser.send(number, cast(Any, None), few=True)
        self._record(number)


@pytest.fixture
def direct(tmp_path: Path) -> Direct:
    return Direct(tmp_path / "epochs")


@pytest.mark.parametrize("away", ["topic", "letters"])
def test_a_sink_that_does_not_answer_hides_no_other_one_that_is_ahead(direct: Direct, away: str) -> None:
    """Before, the start was accepted. The home was found to be older once all sinks answered."""
    for name in ("topic", "letters"):
        sink: Any = getattr(direct, name)
        sink.is_away, sink.has = name == away, EPOCHS + 2
    with pytest.raises(HomeError) as refused:
        direct.start()
    assert (refused.value.condition, refused.value.parameters["there"]) == ("SINK_AHEAD", EPOCHS)


@pytest.mark.parametrize("away", ["a", "b"])
@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_a_table_that_does_not_tell_what_it_has_hides_no_other_one_that_is_ahead(world: World, away: str) -> None:
    """A start first asks tables and folders what they still have. The one that is away delays the next question."""
    sinks = {"a": Sink(), "b": Sink()}
    for name, sink in sinks.items():
        sink.has, sink.is_away = EPOCHS + 2, name == away
    releaser = EpochReleaser(world.epochs, cast(Any, sinks), None, StructType())
    with pytest.raises(HomeError) as refused:
        releaser.remains(EpochNumber(EPOCHS))
    assert refused.value.condition == "SINK_AHEAD"


@pytest.mark.parametrize("ahead", [1, 3])
def test_no_epoch_goes_straight_to_a_topic_that_was_not_compared(direct: Direct, ahead: int) -> None:
    """Before, the topic took the new epochs for those that it had. Their rows were lost, and the home recorded them as
    complete. Then it had as many epochs as the topic, and nothing showed its age any more."""
    direct.topic.has, direct.topic.is_away, direct.letters.is_away = EPOCHS + ahead, True, True
    direct.start()
    direct.topic.is_away = False
    with pytest.raises(HomeError) as refused:
        direct.run_epoch()
    assert (refused.value.condition, refused.value.parameters["there"]) == ("SINK_AHEAD", EPOCHS)
    assert not direct.topic.dropped


def test_an_epoch_waits_until_its_topic_and_the_dead_letters_were_compared(direct: Direct) -> None:
    direct.letters.is_away = True
    direct.start()
    for _ in range(2):
        with pytest.raises(SparkError) as waits:
            direct.run_epoch()
        assert passes(waits.value), "so the batch tries again, however long it takes"
    assert not direct.releaser.has_compared
    direct.letters.is_away = False
    direct.run_epoch()
    direct.run_epoch()
    assert (direct.topic.sent, direct.releaser.has_compared) == ([EPOCHS, EPOCHS + 1], True)


def test_a_stop_waits_for_a_comparison_which_asks_no_further_sink(direct: Direct) -> None:
    """A question opens a new incarnation of a topic's writers. After the stop, these may be those of the next start."""
    direct.topic.is_away = True
    direct.start()
    releaser, asked, waited = direct.releaser, list[str](), list[float]()
    releaser._not_before_s = 0.0

    def visible_later() -> EpochNumber:
        asked.append("topic")
        wait_until(lambda: waited, 30, "the stop to wait for this")
        return EpochNumber(EPOCHS)

    direct.topic.visible = visible_later  # type: ignore[method-assign]
    direct.letters.visible = lambda: (asked.append("letters"), 0)[1]  # type: ignore[method-assign]
    assert not releaser.compare()
    wait_until(lambda: asked, 10, "the comparison")
    comparing: Any = releaser._comparing
    wait = comparing.wait

    def waiting(timeout_s: float) -> bool:
        waited.append(timeout_s)
        return bool(wait(timeout_s))

    comparing.wait = waiting
    releaser.stop()
    is_done = comparing.is_done
    waited.append(0.0)  # so that the thread ends in any case
    assert is_done
    assert wait(10)
    assert asked == ["topic"]
    with pytest.raises(SparkError, match=r"interrupted the comparison of .* with its sinks"):  # no release was
        comparing.result()


@pytest.mark.parametrize(("world", "place"), [("ours", "sqlite")], indirect=True)
def test_nothing_is_deleted_or_acknowledged_before_all_outputs_are_compared(world: World) -> None:
    """If the home is an older copy, the right one names the states and results that this one no longer needs, and reads
    input again that this one has read."""
    world.may_delete = False
    world.complete(2, upto=7)
    recovery = world.start()
    world.release(recovery)
    recovery.turn()
    assert all((world.path / f"{n}-aa").exists() for n in range(EPOCHS + 2))
    assert world.store.retained_from("b") is None
    assert recovery.acknowledged(LogId(SOURCE)) == EMPTY
    world.may_delete = True
    recovery.turn()
    assert not (world.path / "2-aa").exists()
    assert world.store.retained_from("b") is not None
    assert recovery.acknowledged(LogId(SOURCE)).total() == 7


@pytest.mark.parametrize("newest", [1, 2])
@pytest.mark.parametrize("where", ["hop", "dead"])
def test_records_that_are_left_show_that_a_newer_home_deleted_the_others(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, newest: int
) -> None:
    """Before, the region failed with `SINK_EXPIRED`, and the other regions ran with the older home."""
    store.create_region("r", RegionRecord(fingerprint={}, start_offsets={}, partitions={}), {})
    store.open_incarnation("r", -1)
    positions: Any = {"hop": {0: 100}, "dead": {0: 0}}
    store.observe_tail("r", TailRecord(valid_from_commit=BatchId(3), incarnation=1, positions=positions))  # type: ignore[arg-type]
    topics = SimpleNamespace(first_positions=lambda topic: {0: 900 if topic == "hop" else 0})
    place: Any = SimpleNamespace(home=SimpleNamespace(store=store, path=tmp_path), topics=topics)
    region: Any = SimpleNamespace(name="r", output="hop", dead_letters="dead", where="x", repeats=False)
    outputs, read = Outputs(region, place), list[Any]()

    def own_records(self: Outputs, topic: str, first: Any, last: Any) -> Any:
        read.append((topic, first, last))
        header = SimpleNamespace(incarnation=newest if topic == where else 1)
        return iter([(0, first[0], header)])

    monkeypatch.setattr(Outputs, "own_records", own_records)
    with pytest.raises(FalkirkError) as refused:
        outputs.tail(LogId("hop"), {LogId("hop"): {0: 1000}, LogId("dead"): {0: 5}}, BatchId(3))  # type: ignore[dict-item]
    assert refused.value.condition == ("SINK_EXPIRED" if newest == 1 else "SINK_AHEAD")
    assert read[0] == ("hop", {0: 900}, {0: 1000}), "the records that are left"


@pytest.mark.parametrize("shows", ["nothing", "a newer home", "that records expired"])
def test_a_region_that_waits_for_a_view_is_compared_meanwhile(shows: str) -> None:
    """It may wait for days. Otherwise, nothing in the home and in the hops would be deleted all this time."""
    region, asked, shown = cast(Any, RegionAtRest.__new__(RegionAtRest)), list[str](), list[int]()
    region._compared, region._ends, region._on_progress = None, None, partial(shown.append, 1)
    region.checkpoints = lambda: (SimpleNamespace(number=-1), SimpleNamespace(number=4))

    def tail(name: str, ends: object, restored: int, *, keep: bool) -> Any:
        assert keep, "its start need not read it again"
        assert len(shown) == len(asked) + 1, "the coordinator sees that the host works"
        asked.append(name)
        assert (ends, restored) == ("ends", 4)
        if shows == "that records expired":
            raise LogError("SINK_EXPIRED", "no")
        return SimpleNamespace(incarnations={2: 1} if shows == "a newer home" else {1: 1})

    def refuse_ahead(*tails: Any) -> None:
        if any(2 in each.incarnations for each in tails):
            raise HomeError("SINK_AHEAD", "no")

    region._outputs = SimpleNamespace(names=("hop", "dead"), tail=tail, refuse_ahead=refuse_ahead)
    home, error = SimpleNamespace(may_delete=False), None
    live = cast(Any, SimpleNamespace(region=SimpleNamespace(name="l"), opening=None, compare=region.compare))
    batches = Batches(regions={}, logs=cast(Any, None), files=(), releasers=())
    batches.sweep([live], {}, cast(Any, home))
    assert not home.may_delete
    assert not asked, "its writers may still run"
    region._ends = "ends"  # from here on, it is fenced
    for _ in range(2):
        try:
            batches.sweep([live], {}, cast(Any, home))
        except HomeError as refused:
            error = refused.condition
            break
    assert (error, home.may_delete) == ("SINK_AHEAD" if shows == "a newer home" else None, shows == "nothing")
    assert asked == (["hop"] if shows == "that records expired" else ["hop", "dead"]), "it is read once"


def unit_of(name: str, detail: str, *, is_compared: bool, is_live: bool = True) -> Any:
    unit: Any = (SupervisedRegion if is_live else SupervisedBatch).__new__(
        SupervisedRegion if is_live else SupervisedBatch
    )
    unit.status = RegionStatus(name=name, detail=detail)
    unit.live = SimpleNamespace(opening=None, is_compared=is_compared)
    unit._region = SimpleNamespace(releaser=SimpleNamespace(has_compared=is_compared))
    return unit


@pytest.mark.parametrize("may_delete", [False, True])
def test_the_status_tells_that_old_data_is_kept(may_delete: bool) -> None:
    """A live region that is down for good compares nothing, and nobody waits for it. The sinks of a batch are asked."""
    made = {
        "waits": unit_of("waits", "its sink does not answer", is_compared=False, is_live=False),
        "starts": unit_of("starts", "", is_compared=False),
        "runs": unit_of("runs", "skips a file", is_compared=True),
        "fails": unit_of("fails", "", is_compared=False),
        "is down": unit_of("is down", "", is_compared=False),
        "a batch": unit_of("a batch", "", is_compared=False, is_live=False),
    }
    down = {"fails": FAILED, "is down": FAILED_FOR_GOOD, "a batch": FAILED_FOR_GOOD}
    found = {s.name: s.detail for s in statuses(made, down, {}, may_delete=may_delete)}
    kept = "" if may_delete else f"; {KEEPS}"
    assert found == {
        "waits": f"its sink does not answer{kept}",
        "starts": "",
        "runs": "skips a file",
        "fails": f"SINK_EXPIRED: {FAILED}{kept}",
        "is down": f"FUNCTION_FAILED: {FAILED_FOR_GOOD}",
        "a batch": f"FUNCTION_FAILED: {FAILED_FOR_GOOD}{kept}",
    }


def test_a_host_collects_once_all_outputs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "falkirk.runtime.supervision.host.RecoveryProtocol", lambda *parts, **named: given.append(named)
    )
    monkeypatch.setattr("falkirk.runtime.supervision.host.KafkaLogs", lambda *parts: None)
    monkeypatch.setattr("falkirk.runtime.supervision.host.AllLogs", lambda *parts: SimpleNamespace(ends=None))
    monkeypatch.setattr("falkirk.runtime.supervision.host.begin_once", lambda *parts, **named: None)
    home = SimpleNamespace(may_delete=False, store=None)
    host = cast(Any, Host.__new__(Host))
    host._context = SimpleNamespace(home=home, clock=time, recorder=SimpleNamespace(is_on=False))
    host._plan = SimpleNamespace(push=(), spare_checkpoints=0)
    host._batches = SimpleNamespace(logs=None, regions={})
    host._units, host._regions, host._history, host._say, host._is_once = {}, {}, None, None, False
    host._clocks = SimpleNamespace(tick=None)
    host._new_protocol(SimpleNamespace(layout=None, full_history=()))
    (named,) = given
    assert not named["may_delete"]()
    home.may_delete = True
    assert named["may_delete"]()
