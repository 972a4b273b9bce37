"""Policies fill Table 1 from a history: Figure 3's selective checkpoints, and each regime's columns."""

from falkirk.theory.graph import Edge, Graph, Processor
from falkirk.theory.metadata import Anywhere, Checkpoints
from falkirk.theory.rollback import solve
from falkirk.theory.times import StructuredTime
from formal.events import Event, History, Message
from formal.policy import BATCH, EAGER, EPHEMERAL, FULL_HISTORY, LAZY, LAZY_SELECTIVE, requeued
from formal.projection import Same
from tests.theory.graphs import EPOCHS, through

A, B = StructuredTime(0), StructuredTime(1)
GRAPH = Graph(
    [
        Processor(name="select", domain=EPOCHS),
        Processor(name="sum", domain=EPOCHS, notified=True),
        Processor(name="buffer", domain=EPOCHS),
    ],
    [
        Edge(name="numbers", source="select", target="sum", projection=Same(), domain=EPOCHS),
        Edge(name="sums", source="sum", target="buffer", projection=Same(), domain=EPOCHS),
    ],
)


def number(time: StructuredTime, value: int) -> Message:
    return Message(edge="numbers", time=time, content=value)


def total(time: StructuredTime, value: int) -> Message:
    return Message(edge="sums", time=time, content=value)


#: Figure 3: messages of both times interleave, and only time A is complete.
SUM = History(
    (
        Event(time=A, message=number(A, 2)),
        Event(time=B, message=number(B, 7)),
        Event(time=A, message=number(A, 3)),
        Event(time=A, sent=(total(A, 5),)),
        Event(time=B, message=number(B, 1)),
    )
)


def sums(history: History) -> dict[object, int]:
    """Return the state of Sum after a history: its sums for times that are not complete."""
    state: dict[object, int] = {}
    for event in history.events:
        if event.message is None:
            state.pop(event.time, None)
        else:
            assert isinstance(event.message.content, int)
            state[event.time] = state.get(event.time, 0) + event.message.content
    return state


def test_figure_3_a_checkpoint_of_a_state_the_processor_was_never_in() -> None:
    at_a = through(0)
    states = [sums(History(SUM.events[:n])) for n in range(1, len(SUM.events) + 1)]
    saved = sums(SUM.at(at_a))
    assert saved == {}, "all of A and nothing of B: there is nothing to save"
    assert saved not in states
    assert not SUM.is_prefix(at_a)
    assert LAZY_SELECTIVE.may_go_to(SUM, at_a)
    assert not LAZY.may_go_to(SUM, at_a)
    # After a rollback to A, B is delivered again in any order, and the state equals that before the failure.
    again = History((*SUM.at(at_a).events, *[e for e in SUM.events if e.time == B]))
    assert sums(again) == states[-1]


def test_table_1_of_each_policy() -> None:
    at_a = through(0)
    exact = LAZY_SELECTIVE.metadata("sum", GRAPH, SUM, at_a)
    assert (exact.notified, exact.delivered, exact.discarded) == (at_a, {"numbers": at_a}, {"sums": at_a})
    assert EAGER.metadata("sum", GRAPH, SUM, at_a).discarded == {}, "all that was sent is logged"
    assert EAGER.logged(SUM, at_a) == {"sums": (total(A, 5),)}
    assert LAZY.logged(SUM, at_a) == {}
    for policy, discarded in ((EPHEMERAL, {"sums": at_a}), (BATCH, {}), (FULL_HISTORY, {})):
        assert isinstance(policy.available("sum", GRAPH), Anywhere)
        metadata = policy.metadata("sum", GRAPH, History(), at_a)
        assert (metadata.notified, metadata.delivered) == (at_a, {"numbers": at_a}), "nothing need be remembered"
        assert metadata.discarded == discarded
    assert FULL_HISTORY.logged(SUM, at_a) == EAGER.logged(SUM, at_a), "a replay sends it again"


def test_only_what_the_receiver_lacks_is_put_back() -> None:
    messages = (total(A, 5), total(B, 8))
    assert requeued(messages, through(0)) == (total(B, 8),)
    assert requeued(messages, EPOCHS) == messages


def test_figure_3_rolls_back_to_a() -> None:
    available = {
        n: p.available(n, GRAPH) for n, p in (("select", EPHEMERAL), ("sum", LAZY_SELECTIVE), ("buffer", LAZY))
    }
    for name, history in (("sum", SUM), ("buffer", History((Event(time=A, message=total(A, 5)),)))):
        mine = available[name]
        assert isinstance(mine, Checkpoints)
        mine.add(LAZY_SELECTIVE.metadata(name, GRAPH, history, through(0)))
    assert {str(m.frontier) for m in solve(GRAPH, available).chosen.values()} == {"≤ 0"}
