"""Policies: which data a processor makes durable, in independent fields, and how each policy fills Table 1.

Known mechanisms are points in this space. The regimes of Figure 1 are four of them:

    EPHEMERAL      keeps nothing, saves nothing, logs nothing: its senders must send messages again
    BATCH          keeps nothing between times, logs sent messages, so that upstream does not go back (RDDs)
    LAZY           saves its state at chosen completed times (Chandy–Lamport's processors do so together)
    EAGER          saves its state and logs sent messages at every event (MillWheel's strong productions)
    FULL_HISTORY   logs received messages, and reaches any frontier by processing them again
    LIVE           as full history, with its durable input log as the history; checkpoints shorten the replay

LIVE combines the paper with exactly-once over determinism, whose barrier drops the messages that a replay sends again.
Source: Falkirk Wheel, §1, §2, §3.4 (Table 1) and §4.1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from falkirk.theory.frontier import Frontier, OffsetFrontier, down
from falkirk.theory.graph import Graph, Processor
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.times import SequenceTime, Time, TopicPartition
from formal.events import History, Message, closure


def initial(processor: Processor) -> Metadata:
    """Return Ξ(p,∅): no events and no messages. Every processor can go back to it."""
    return Metadata(frontier=processor.domain)


class State(Enum):
    """How S(p,f) is obtained after a failure."""

    NONE = "none"
    """There is no state between times. Within a time, the state is lost."""
    SAVED = "saved"
    """The state comes from a checkpoint at f."""
    REPLAYED = "replayed"
    """A replay of a durable history computes the state: the processor is deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The data that a processor makes durable.

    Args:
        state: how its state is obtained after a failure.
        logs_sent: whether it logs every message it sends, so that L(e,f) contains all of them and D̄(e,f) = ∅. Messages
            of a replay are sent again, so they need no log.
        selective: whether it saves state by time, and can go back to frontiers at which its history has no prefix.
        saves_at: whether to save once a time is complete. It is called once per time, and the time never becomes
            incomplete again. It has no effect without saved state.
        durable_input: whether other logs hold all its input permanently.
        saves_every_event: save after each event instead of at completed times.
    """

    state: State
    logs_sent: bool = False
    selective: bool = False
    saves_at: Callable[[Time], bool] = lambda time: True
    durable_input: bool = False
    saves_every_event: bool = False

    def available(self, processor: str, graph: Graph) -> Available:
        """Return F*(p) before anything is processed."""
        if self.state is State.SAVED:
            return Checkpoints([initial(graph.processors[processor])])
        discards = self.state is State.NONE and not self.logs_sent
        nothing = graph.processors[processor].domain
        return Anywhere(discards=discards, reach=None if discards or self.durable_input else nothing)

    def metadata(self, processor: str, graph: Graph, history: History, frontier: Frontier) -> Metadata:
        """Return Ξ(p,f): Table 1 without the state and the logs.

        If state is saved, H@f determines it exactly. Otherwise M̄, N̄ and D̄ are upper bounds over all events in f.
        """
        available = self.available(processor, graph)
        inputs, outputs = graph.inputs[processor], graph.outputs[processor]
        if isinstance(available, Anywhere):
            return available.describe(frontier, graph.processors[processor], inputs, outputs)
        kept = history.at(frontier)
        delivered, sent = kept.delivered, kept.sent
        told = closure(graph.processors[processor].domain, kept.notifications)
        return Metadata(
            frontier=frontier,
            notified=None if told.is_empty else told,
            delivered={
                d.name: closure(frontier.nothing(), (m.time for m in delivered.get(d.name, ()))) for d in inputs
            },
            projected={
                e.name: _fixed(e.sequences, sent.get(e.name, ()), history.without(frontier).sent.get(e.name, ()))
                for e in outputs
                if e.projection is None
            },
            discarded={
                e.name: closure(e.domain, (m.time for m in sent.get(e.name, ()))) for e in outputs if not self.logs_sent
            },
        )

    def logged(self, history: History, frontier: Frontier) -> Mapping[str, tuple[Message, ...]]:
        """Return L(e,f) of every output edge: the messages sent in f that can be sent again."""
        can = self.logs_sent or self.state is State.REPLAYED
        return history.at(frontier).sent if can else {}

    def may_go_to(self, history: History, frontier: Frontier) -> bool:
        """Return whether this policy permits a frontier. Without selective rollback it permits only prefixes."""
        return self.selective or self.state is not State.SAVED or history.is_prefix(frontier)


def requeued(logged: tuple[Message, ...], target: Frontier) -> tuple[Message, ...]:
    """Return Q'(e): the messages of L(e, f(p)) with times outside f(dst(e)). They are delivered after a rollback."""
    return tuple(m for m in logged if m.time not in target)


def _fixed(
    sequences: frozenset[TopicPartition], sent: tuple[Message, ...], otherwise: tuple[Message, ...]
) -> OffsetFrontier:
    """Return {(e,1) … (e,s)}: the fixed part of an edge, given the messages of events in f and of the other events.

    Args: sent: messages of events in f. otherwise: messages of other events. If an event outside f sent earlier
        (selective rollback), only the messages before its message are fixed.
    """
    fixed = down(m.time for m in sent if isinstance(m.time, SequenceTime))
    for message in otherwise:
        assert isinstance(message.time, SequenceTime)
        e = message.time.sequence
        fixed = fixed.limit(OffsetFrontier.of({e: message.time.offset}), [e])
    return fixed.only(sequences)


EPHEMERAL = Policy(state=State.NONE)
BATCH = Policy(state=State.NONE, logs_sent=True)
LAZY = Policy(state=State.SAVED)
LAZY_SELECTIVE = Policy(state=State.SAVED, selective=True)
EAGER = Policy(state=State.SAVED, logs_sent=True, saves_every_event=True)
FULL_HISTORY = Policy(state=State.REPLAYED)
LIVE = Policy(state=State.REPLAYED, durable_input=True)
