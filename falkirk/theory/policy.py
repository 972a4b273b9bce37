"""Policies: what a processor makes durable, in fields that are chosen one by one, and how each fills Table 1.

Known schemes are points in this space, and the regimes of Figure 1 are four of them:

    EPHEMERAL      keeps nothing, saves nothing, logs nothing: whoever feeds it must send again
    BATCH          keeps nothing between times, logs what it sends, so that upstream stays where it is (RDDs)
    LAZY           saves its state at chosen completed times (Chandy–Lamport's processors do so together)
    EAGER          saves its state and logs what it sends at every event (MillWheel's strong productions)
    FULL_HISTORY   logs what it receives, and comes back to any frontier by processing it again
    LIVE           as full history, with the durable log that it reads as its history; checkpoints are shortcuts into it

Source: Falkirk Wheel, §1, §2, §3.4 (Table 1) and §4.1. LIVE: what the paper gives together with exactly-once over
determinism, whose barrier drops what a replay sends again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from falkirk.theory.frontier import Frontier, OffsetFrontier, down
from falkirk.theory.graph import Graph
from falkirk.theory.history.events import History, Message, closure
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata, initial
from falkirk.theory.times import SequenceTime, Time, TopicPartition


class State(Enum):
    """How S(p,f) is come by after a failure."""

    NONE = "none"
    """There is none between times; within one it is lost."""
    SAVED = "saved"
    """From a checkpoint at f."""
    REPLAYED = "replayed"
    """By processing a durable history again: the processor is deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a processor makes durable.

    Args:
        state: how its state is come by again.
        logs_sent: it logs every message it sends, so L(e,f) is all of them and D̄(e,f) = ∅. What is replayed is sent
            again and so need not be logged.
        selective: it saves state by time, and can go back to frontiers at which its history has no prefix.
        saves_at: whether to save once a time is complete; called once per time, with a time that never was or will be
            again. Of no meaning without saved state.
        durable_input: all that it reads is in logs of others, and stays there.
        saves_every_event: save after each event instead of at completed times.
    """

    state: State
    logs_sent: bool = False
    selective: bool = False
    saves_at: Callable[[Time], bool] = lambda time: True
    durable_input: bool = False
    saves_every_event: bool = False

    def available(self, processor: str, graph: Graph) -> Available:
        """Return F*(p) before anything was processed."""
        if self.state is State.SAVED:
            return Checkpoints([initial(graph.processors[processor])])
        discards = self.state is State.NONE and not self.logs_sent
        nothing = graph.processors[processor].domain
        return Anywhere(discards=discards, reach=None if discards or self.durable_input else nothing)

    def metadata(self, processor: str, graph: Graph, history: History, frontier: Frontier) -> Metadata:
        """Return Ξ(p,f): Table 1, but for the state and the logs.

        Where state is saved it is exact, by H@f; otherwise M̄, N̄ and D̄ are what events in f could have had at most.
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
        """Tell whether a frontier is one that this policy allows for: without selective rollback, only prefixes."""
        return self.selective or self.state is not State.SAVED or history.is_prefix(frontier)


def requeued(logged: tuple[Message, ...], target: Frontier) -> tuple[Message, ...]:
    """Return Q'(e): the messages of L(e, f(p)) whose times are not in f(dst(e)), to be delivered after a rollback."""
    return tuple(m for m in logged if m.time not in target)


def _fixed(
    sequences: frozenset[TopicPartition], sent: tuple[Message, ...], otherwise: tuple[Message, ...]
) -> OffsetFrontier:
    """Return {(e,1) … (e,s)}: what is fixed on an edge where events in f sent this, and others something else.

    Where events outside f came first (selective rollback), only what lies before their messages is fixed.
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
