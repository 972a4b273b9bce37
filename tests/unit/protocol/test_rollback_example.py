"""The example that docs/model.md draws, computed."""

from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.recovery.protocol.rollback import decide_rollback
from falkirk.theory.constraints import Constraint
from falkirk.theory.frontier import OffsetFrontier
from falkirk.theory.times import TopicPartition


def upto(topic: str, length: int) -> OffsetFrontier:
    return OffsetFrontier.of({TopicPartition(topic=topic, partition=0): length})


def example(*, deterministic: bool) -> tuple[Layout, dict[str, tuple[Checkpoint, ...]]]:
    layout = Layout(
        stages={
            "offers": Stage(name="offers", inputs=("asks",), output="offers", deterministic=deterministic),
            "prices": Stage(name="prices", inputs=("offers",), output="prices"),
            "audit": Stage(name="audit", inputs=("clicks",), output="audit"),
        },
        partitions=dict.fromkeys(("asks", "offers", "prices", "clicks", "audit", "public prices"), 1),
        held={} if deterministic else {"prices": "public prices"},
    )

    def checkpoints(read: str, sent: str, *pairs: tuple[int, int]) -> tuple[Checkpoint, ...]:
        begin = Checkpoint(number=-1, read=upto(read, 0), sent=upto(sent, 0))
        return (
            begin,
            *(Checkpoint(number=i, read=upto(read, r), sent=upto(sent, s)) for i, (r, s) in enumerate(pairs)),
        )

    return layout, {
        "offers": checkpoints("asks", "offers", (40, 40), (70, 70)),
        "prices": checkpoints("offers", "prices", (60, 60), (85, 85)),
        "audit": checkpoints("clicks", "audit", (10, 10), (20, 20)),
    }


def test_prices_goes_back_with_offers_and_audit_stays() -> None:
    layout, checkpoints = example(deterministic=False)
    decision = decide_rollback(layout, checkpoints, failed=frozenset({"offers"}), outside={})
    assert decision.goes == {"offers": 1, "prices": 0}
    assert decision.takes_back == ("offers", "prices")
    why = list(decision.solution.why("prices"))
    assert (why[0].constraint, why[0].edge) == (Constraint.DELIVERED, "offers to prices")
    assert (why[-1].variable.processor, why[-1].refused) == ("offers", None)


def test_a_deterministic_one_moves_nobody_else() -> None:
    layout, checkpoints = example(deterministic=True)
    decision = decide_rollback(layout, checkpoints, failed=frozenset({"offers"}), outside={})
    assert decision.goes == {"offers": 1}
    assert decision.takes_back == ()


def test_what_is_outside_is_not_contradicted_unawares() -> None:
    layout, checkpoints = example(deterministic=False)
    decision = decide_rollback(
        layout, checkpoints, failed=frozenset(), outside={"prices": upto("prices", 61)}, asked={"prices": 0}
    )
    assert decision.contradicts == ("public prices",)
    assert not decide_rollback(
        layout, checkpoints, failed=frozenset(), outside={"prices": upto("prices", 60)}, asked={"prices": 0}
    ).contradicts
