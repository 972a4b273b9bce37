"""The past of a running application, which makes further checkpoints while a command reads it."""

from types import SimpleNamespace
from typing import Any, cast

from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, LogId
from falkirk.theory.times import TopicPartition
from falkirk.user_tools.commands.history.application import OfflineApplication

SOURCE, OUTPUT = LogId("in"), LogId("out")


def test_results_that_are_sent_meanwhile_are_not_counted_below_zero() -> None:
    """Each look at the checkpoints finds one more, with results that were sent before it."""
    sent = 5

    def at(log: LogId, length: int) -> OffsetFrontier:
        return OffsetFrontier.of({TopicPartition(topic=log, partition=0): length})

    def checkpoints() -> tuple[Checkpoint, ...]:
        nonlocal sent
        sent += 3
        return (Checkpoint(number=CheckpointNumber(1), read=at(SOURCE, sent), sent=at(OUTPUT, sent), made_at_s=1.0),)

    layout = Layout({"r": Stage(name="r", inputs=(SOURCE,), output=OUTPUT)}, {SOURCE: 1, OUTPUT: 1}, {})
    visit = cast(Any, object.__new__(OfflineApplication))
    visit.shape, visit.regions = SimpleNamespace(layout=layout), {"r": SimpleNamespace(checkpoints=checkpoints)}
    visit._store = SimpleNamespace(newest_recovery=lambda: None)
    visit.logs = SimpleNamespace(ends=lambda log: at(log, sent))
    assert [past.since for past in visit.history()] == [0]
