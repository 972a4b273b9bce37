"""A cluster from which only some processors read is away: the host waits for it with these alone."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.errors import LogError
from falkirk.errors.conditions.kafka_client import BROKER_AWAY
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.spark.context import Context
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from falkirk.theory.ids import LogId, Offset, cluster_of
from tests.support import wait_until

THERE, HERE = LogId("orders@east"), LogId("orders")


class Topics:
    """Topics of two clusters. Args: away: the clusters that do not answer."""

    def __init__(self, *away: str) -> None:
        self.away, self.asked = set(away), list[str]()

    def await_cluster(self, topic: str, timeout_s: float) -> None:
        self.first_positions(topic)

    def first_positions(self, topic: str) -> dict[int, Offset]:
        self.asked.append(topic)
        if cluster_of(topic) in self.away:
            raise BROKER_AWAY.error(where="", topic=topic, code="", doing="asking", said="")
        return {0: Offset(7)}


def context_of(topics: Topics) -> Context:
    connection = Connection.of("own:1").with_others({"east": Connection.of("east:1")})
    home = SimpleNamespace(store=SimpleNamespace(decisions_of=lambda kind: {}))
    context = Context(session=cast(Any, None), connection=connection, home=cast(Any, home), state_partitions=1)
    object.__setattr__(context, "topics", topics)
    return context


def test_the_oldest_positions_of_another_cluster_are_those_of_the_last_look() -> None:
    topics = Topics()
    context = context_of(topics)
    wait_until(lambda: context.oldest(THERE) == {0: 7}, 10, "a look")
    topics.away.add("east")
    wait_until(lambda: context.oldest(THERE) == {}, 10, "a look in vain")
    assert context.oldest(HERE) == {0: 7}
    topics.away.add("")
    with pytest.raises(LogError):
        context.oldest(HERE)


class Unit:
    """A processor as the host sees it; `poll` asks the cluster from which it reads."""

    def __init__(self, name: str, reads: LogId, context: Context) -> None:
        self.name, self.reads, self._context, self.polled = name, (reads,), context, 0
        self.detail = ""

    def poll(self) -> None:
        self.polled += 1
        self._context.topics.first_positions(self.reads[0])

    def wait(self, reason: str) -> None:
        self.detail = reason

    def waits_for_cluster(self, *, ask: bool = False) -> bool:
        return SupervisedRegion.waits_for_cluster(cast(Any, self), ask=ask)


def check(*units: Unit) -> None:
    """Let a host check these units once."""
    host: Any = SimpleNamespace(
        _units={unit.name: unit for unit in units}, _regions={}, down={}, _acceptance=None, _once=None,
        _recovery=SimpleNamespace(turn=lambda: None, down=SimpleNamespace(errors={})),
        _failures=SimpleNamespace(next_trial=lambda down: None), _context=SimpleNamespace(home=None),
        _rollbacks=SimpleNamespace(are_there=lambda: False), _update_views=lambda recovery: None,
        _batches=SimpleNamespace(sweep=lambda *parts: None), _clocks=SimpleNamespace(update=lambda recovery: None),
    )  # fmt: skip
    Host._check_units(host)


def test_one_cluster_that_is_away_stops_no_other_processor() -> None:
    topics = Topics("east")
    context = context_of(topics)
    theirs, ours = Unit("theirs", THERE, context), Unit("ours", HERE, context)
    check(theirs, ours)
    assert (theirs.polled, ours.polled) == (1, 1)
    assert "cluster east" in theirs.detail
    assert not ours.detail
    topics.away = {""}
    with pytest.raises(LogError):  # the host waits for its own broker with all
        check(ours, theirs)


def test_a_processor_starts_only_if_its_cluster_answers_now() -> None:
    topics = Topics()
    context = context_of(topics)
    unit = Unit("theirs", THERE, context)
    assert not unit.waits_for_cluster(ask=True)
    topics.away.add("east")
    assert unit.waits_for_cluster(ask=True), "the last look does not count"
    assert not Unit("ours", HERE, context).waits_for_cluster(ask=True)
    assert fk.Kafka("orders", schema="n INT", kafka=Connection("east:1", name="east")).log == THERE
