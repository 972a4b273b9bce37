"""The solver against brute force over small applications, and against the figures of the paper."""

import copy
import random
from itertools import product

import pytest

from falkirk.theory.constraints import Constraint
from falkirk.theory.frontier import Frontier, OffsetFrontier, StructuredFrontier, down
from falkirk.theory.graph import Edge, Graph, Processor
from falkirk.theory.metadata import Anywhere, Available, Checkpoints, Metadata
from falkirk.theory.projection import Enter, Feedback, Leave
from falkirk.theory.rollback import Rollback, solve
from falkirk.theory.times import OMEGA, SequenceTime, StructuredTime, TopicPartition
from formal.policy import initial
from formal.projection import Same
from tests.strategies import examples
from tests.theory.consistent import may_checkpoint, violations
from tests.theory.graphs import EPOCHS, checkpoint, consistent_choices, epoch_graph, random_application, through
from tests.theory.lexicographic import Lexicographic, lexicographic

UNIVERSE: list[Frontier] = [EPOCHS, through(0), through(1), EPOCHS.everything()]
TOP = EPOCHS.everything()
#: (saved checkpoints, whether it may have failed) per processor: all kinds that two epochs can distinguish.
KINDS = ["nothing", "first", "both", "both, logging", "anywhere", "anywhere, logging", "alive", "alive, first"]


def options(graph: Graph, name: str, kind: str) -> Available:
    if kind.startswith("anywhere"):
        return Anywhere(discards=kind == "anywhere")
    epochs = {"nothing": [], "alive": [], "first": [0], "alive, first": [0]}.get(kind, [0, 1])
    chain = [checkpoint(graph, name, t, logs=kind.endswith("logging")) for t in epochs]
    if kind.startswith("alive"):
        # It has received and sent messages of both epochs, and discarded the sent ones.
        chain.append(
            Metadata(
                frontier=TOP,
                notified=through(1) if graph.processors[name].notified else None,
                delivered={d.name: through(1) for d in graph.inputs[name]},
                discarded={e.name: through(1) for e in graph.outputs[name]},
            )
        )
    return Checkpoints([initial(graph.processors[name]), *chain])


def promises(solution: Rollback) -> dict[str, Frontier]:
    """Return f_n of every processor. If the solver stores none, because it restricts no processor, ∅ is sufficient."""
    return {n: solution.notified.get(n, p.domain) for n, p in solution.graph.processors.items()}


def assert_greatest(graph: Graph, available: dict[str, Available]) -> None:
    solution = solve(graph, available)
    assert not list(violations(graph, available, solution.chosen, promises(solution)))
    choices = list(consistent_choices(graph, available, dict.fromkeys(graph.processors, UNIVERSE)))
    assert choices
    for chosen, _ in choices:
        assert all(chosen[n].frontier <= solution.chosen[n].frontier for n in graph.processors)
    assert any(all(chosen[n].frontier == solution.chosen[n].frontier for n in chosen) for chosen, _ in choices)


@pytest.mark.parametrize("notified", ["", "a", "b", "ab"])
@pytest.mark.parametrize("paths", [["ab"], ["ab", "ba"], ["aa", "ab"], ["ab", "bb"]], ids="+".join)
def test_the_greatest_choice_for_all_pairs(paths: list[str], notified: str) -> None:
    graph = epoch_graph("ab", paths, notified=notified)
    for kinds in product(KINDS, repeat=2):
        assert_greatest(graph, {n: options(graph, n, k) for n, k in zip("ab", kinds, strict=True)})


@pytest.mark.parametrize("seed", range(150))
def test_the_greatest_choice_for_three(seed: int) -> None:
    rng = random.Random(seed)
    paths = [p for p in ("ab", "bc", "ac", "ba", "cb", "ca") if rng.random() < 0.5]
    graph = epoch_graph("abc", paths, notified="".join(n for n in "abc" if rng.random() < 0.4))
    assert_greatest(graph, {n: options(graph, n, rng.choice(KINDS)) for n in "abc"})


@pytest.mark.parametrize("block", range(examples(5)))
def test_consistent_over_mixed_domains_and_an_added_checkpoint_never_shrinks_it(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        graph, available, arrivals = random_application(seed, size=6, ragged=seed % 4 == 0)
        before = solve(graph, copy.deepcopy(available))
        for name, metadata in arrivals:
            mine = available[name]
            assert isinstance(mine, Checkpoints)
            mine.add(metadata)
            solution = solve(graph, copy.deepcopy(available))
            assert not list(violations(graph, available, solution.chosen, promises(solution))), seed
            for p in graph.processors:
                assert before.chosen[p].frontier <= solution.chosen[p].frontier, seed
            before = solution


def test_a_swapped_inclusion_would_be_found() -> None:
    """Test of the test itself: it names a choice that goes too far, with its edge."""
    graph = epoch_graph("ab", ["ab"])
    available = {n: options(graph, n, "both") for n in "ab"}
    chosen = {"a": checkpoint(graph, "a", 0), "b": checkpoint(graph, "b", 1)}
    found = list(violations(graph, available, chosen, {"a": EPOCHS, "b": EPOCHS}))
    assert [(v.constraint, v.processor, v.edge) for v in found] == [(Constraint.DELIVERED, "b", "ab")]
    found = list(violations(graph, available, chosen | {"a": checkpoint(graph, "a", 1)}, {"a": TOP, "b": EPOCHS}))
    assert [(v.constraint, v.processor) for v in found] == [(Constraint.NOTIFIED, "a")]
    chosen = {"a": checkpoint(graph, "a", 1), "b": checkpoint(graph, "b", 0)}
    found = list(violations(graph, available, chosen, {"a": EPOCHS, "b": EPOCHS}))
    assert [(v.constraint, v.processor, v.edge) for v in found] == [(Constraint.DISCARDED, "a", "ab")]


# -- the paper's figures ----------------------------------------------------------------------------------------------


def figure_5(*, constraint_4: bool) -> Rollback:
    """p and q feed r, and r feeds x. All except r were notified at 0. Only q has failed, and its last checkpoint is
    older."""
    graph = epoch_graph("pqrx", ["pr", "qr", "rx"], notified="pqx" if constraint_4 else "")
    at_0 = through(0)
    told = at_0 if constraint_4 else None
    available: dict[str, Available] = {}
    for name, delivered in {"p": {}, "q": {}, "r": {"pr": at_0}, "x": {}}.items():
        processor = graph.processors[name]
        saved = Metadata(frontier=at_0, notified=told if name != "r" else None, delivered=delivered)
        available[name] = Checkpoints([initial(processor)] if name == "q" else [initial(processor), saved])
    return solve(graph, available)


def test_figure_5_goes_wrong_without_constraint_4() -> None:
    without = figure_5(constraint_4=False)
    assert without.chosen["q"].frontier == EPOCHS
    assert without.chosen["x"].frontier == through(0), "x keeps a promise that q, at work again, may break"
    solution = figure_5(constraint_4=True)
    assert {n: str(m.frontier) for n, m in solution.chosen.items()} == {"p": "≤ 0", "q": "∅", "r": "≤ 0", "x": "∅"}
    why = list(solution.why("x"))
    assert why[0].constraint is Constraint.NOTIFIED
    assert (why[-1].variable.processor, why[-1].refused) == ("q", None), "it ends at what q has not saved"


def test_figure_7_a_chain_of_saved_states_goes_back_to_its_last_common_epoch() -> None:
    graph = epoch_graph("abc", ["ab", "bc"])
    chains = {"a": [0, 1, 2], "b": [0, 2], "c": [1, 2]}
    available: dict[str, Available] = {
        n: Checkpoints([initial(graph.processors[n]), *(checkpoint(graph, n, t) for t in ts)])
        for n, ts in chains.items()
    }
    assert {str(m.frontier) for m in solve(graph, available).chosen.values()} == {"≤ 2"}
    available["c"] = Checkpoints([initial(graph.processors["c"]), checkpoint(graph, "c", 1)])
    # b has no checkpoint 1, so it goes to 0. c has received from b, so it can't stay at 1, and it has no checkpoint 0.
    assert {str(m.frontier) for m in solve(graph, available).chosen.values()} == {"∅"}


def test_figure_7_what_logs_its_sends_is_a_firewall() -> None:
    graph = epoch_graph("abc", ["ab", "bc"])
    available: dict[str, Available] = {
        "a": Checkpoints([initial(graph.processors["a"]), checkpoint(graph, "a", 5)]),
        "b": Checkpoints([initial(graph.processors["b"]), checkpoint(graph, "b", 5, logs=True)]),
        "c": Checkpoints([initial(graph.processors["c"])]),
    }
    assert {n: str(m.frontier) for n, m in solve(graph, available).chosen.items()} == {"a": "≤ 5", "b": "≤ 5", "c": "∅"}


def test_figure_7_what_keeps_nothing_goes_along() -> None:
    graph = epoch_graph("abc", ["ab", "bc"])
    available: dict[str, Available] = {
        "a": Checkpoints([initial(graph.processors["a"]), checkpoint(graph, "a", 1), checkpoint(graph, "a", 4)]),
        "b": Anywhere(discards=True),
        "c": Checkpoints([initial(graph.processors["c"]), checkpoint(graph, "c", 1), checkpoint(graph, "c", 3)]),
    }
    assert {str(m.frontier) for m in solve(graph, available).chosen.values()} == {"≤ 1"}


def loop() -> Graph:
    """Return a loop with one round counter, with a processor before it and one after it."""
    rounds = StructuredFrontier.of(2, [])
    return Graph(
        [
            Processor(name="in", domain=EPOCHS), Processor(name="head", domain=rounds),
            Processor(name="body", domain=rounds), Processor(name="out", domain=EPOCHS),
        ],
        [
            Edge(name="enter", source="in", target="head", projection=Lexicographic(Enter()), domain=rounds),
            Edge(name="on", source="head", target="body", projection=Same(), domain=rounds),
            Edge(name="back", source="body", target="head", projection=Lexicographic(Feedback()), domain=rounds),
            Edge(name="leave", source="body", target="out", projection=Leave(), domain=EPOCHS),
        ],
    )  # fmt: skip


def saved(graph: Graph, points: list[tuple[str, tuple[float, ...]]], discarding: str) -> dict[str, Available]:
    """Return checkpoints of processors. Args: discarding: the names of those that do not keep their sent messages."""
    available: dict[str, Available] = {n: Checkpoints([initial(p)]) for n, p in graph.processors.items()}
    for name, bound in points:
        f = lexicographic(bound)
        gone = {e.name: e.projection.sent(f) for e in graph.outputs[name] if e.projection and name in discarding}
        mine = available[name]
        assert isinstance(mine, Checkpoints)
        mine.add(Metadata(frontier=f, delivered={d.name: f for d in graph.inputs[name]}, discarded=gone))
    return available


def test_figure_7_a_loop_is_left_at_a_round_that_all_of_it_has() -> None:
    graph = loop()
    points: list[tuple[str, tuple[float, ...]]] = [
        ("in", (1,)), ("head", (1, 3)), ("head", (1, 5)), ("body", (1, 2)), ("body", (1, 4)), ("out", (0,)),
    ]  # fmt: skip
    solution = solve(graph, saved(graph, points, "in"))
    # body has sent round 4's messages on to round 5. So the head may keep round 5, and the body its input up to 4.
    found = {n: str(m.frontier) for n, m in solution.chosen.items()}
    head, body = solution.chosen["head"].frontier, solution.chosen["body"].frontier
    assert (head, body) == (lexicographic((1, 5)), lexicographic((1, 4))), found
    assert solution.chosen["out"].frontier == through(0), "epoch 0 has left the loop for good, epoch 1 has not"


def test_a_loop_that_saves_complete_epochs_goes_on_behind_the_newest_and_not_within_a_round() -> None:
    graph, whole = loop(), OMEGA
    points: list[tuple[str, tuple[float, ...]]] = [
        ("in", (2,)), ("head", (0, whole)), ("head", (1, whole)), ("body", (0, whole)), ("body", (1, whole)),
        ("body", (2, 3)), ("out", (0,)), ("out", (1,)),
    ]  # fmt: skip
    # The body has received messages of epoch 2 that no checkpoint of the head fixes, and has discarded its feedback.
    solution = solve(graph, saved(graph, points, "head body"))
    chosen = {n: m.frontier for n, m in solution.chosen.items()}
    complete = lexicographic((1, whole))
    assert (chosen["head"], chosen["body"]) == (complete, complete)
    assert chosen["out"] == through(1), "what has left the loop of a complete epoch stays"
    assert chosen["in"] == through(2), "and its input of the next one need not come again"


def test_sequence_numbers_go_back_to_what_the_sender_had_sent() -> None:
    log = TopicPartition(topic="log", partition=0)
    none = OffsetFrontier(())
    edge = Edge(name="e", source="a", target="b", projection=None, domain=none, sequences=frozenset({log}))
    graph = Graph([Processor(name="a", domain=EPOCHS), Processor(name="b", domain=none)], [edge])

    def read(n: int) -> Metadata:
        at = OffsetFrontier.of({log: n})
        return Metadata(frontier=at, delivered={"e": at})

    sent = Metadata(frontier=through(0), projected={"e": OffsetFrontier.of({log: 10})})
    available: dict[str, Available] = {
        "a": Checkpoints([initial(graph.processors["a"]), sent]),
        "b": Checkpoints([initial(graph.processors["b"]), read(4), read(9), read(13)]),
    }
    assert solve(graph, available).chosen["b"].frontier == OffsetFrontier.of({log: 9})


def test_constraint_1() -> None:
    log = TopicPartition(topic="log", partition=0)
    read = down([SequenceTime(sequence=log, offset=4)])
    assert may_checkpoint(read, [SequenceTime(sequence=log, offset=5)])
    assert not may_checkpoint(read, [SequenceTime(sequence=log, offset=4)])
    assert not may_checkpoint(through(1), [StructuredTime(0)])
