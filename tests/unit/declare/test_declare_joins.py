"""Joins of streams with event time: the records of a stream, and the mistakes that it reports."""

from collections.abc import Callable

import pytest

import falkirk as fk
from falkirk.declare.joins import TimedJoin
from falkirk.declare.nodes import ProcessorNode, Step
from falkirk.declare.stream import Stream
from falkirk.declare.watermark import interval_text

SHOWN, CLICKS = (Stream(ProcessorNode(name=name)) for name in ("shown", "clicks"))
TIMED = SHOWN.withWatermark("at", "10 seconds"), CLICKS.withWatermark("at", "5 seconds").where("n > 1")


def join_of(stream: Stream) -> TimedJoin:
    """Return the declaration in the last step of a stream."""
    assert isinstance(stream.node, Step)
    assert stream.node.operation == "timedJoin"
    found = stream.node.arguments[1]
    assert isinstance(found, TimedJoin)
    return found


def test_both_watermarks_and_names_are_recorded() -> None:
    found = join_of(TIMED[0].join(TIMED[1].alias("c"), "id", "left_outer", within="10 minutes"))
    assert (found.on, found.how, found.within_us) == (("id",), "left", 600_000_000)
    assert found.names == ("shown", "c")
    assert [each.delay_us for each in found.watermarks] == [10_000_000, 5_000_000]
    assert str(found).startswith("left join of shown and c on id within 600 s, times at, 10 s")


@pytest.mark.parametrize(
    ("how", "keeps"),
    [("inner", (False, False)), ("leftouter", (True, False)), ("right", (False, True)), ("full_outer", (True, True))],
)
def test_kinds_have_the_names_of_pyspark(how: str, keeps: tuple[bool, bool]) -> None:
    assert join_of(TIMED[0].join(TIMED[1], ["id"], how)).keeps == keeps


def test_steps_that_pass_the_time_on_can_come_between() -> None:
    assert join_of(TIMED[0].select("id", "at").drop("n").join(TIMED[1].selectExpr("*", "n + 1 AS m"), "id"))


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (600_000_000, "600 s"),
        (500, "0.0005 s"),
        (86_400_000_000, "86400 s"),
        (10**15, "1e+09 s"),
        (1_234_567_000_000, "1234567000000 us"),
        (600_000_001, "600000001 us"),
        (2**53 + 1, "9007199254740993 us"),
    ],
)
def test_the_text_of_a_duration_names_no_other(duration_us: int, text: str) -> None:
    """Homes compare these texts. A home of an earlier version has those with six digits."""
    assert interval_text(duration_us) == text


def test_without_event_time_an_inner_join_by_names_is_that_of_batches() -> None:
    once = [each.dropDuplicates(["id"]) for each in TIMED]  # their times serve another such step, and no join
    for left, right in ((SHOWN, CLICKS), (once[0], CLICKS), (SHOWN, once[1]), (once[0], once[1])):
        made = left.join(right, "id", time="at", within="1 minute")
        assert isinstance(made.node, Step)
        assert made.node.operation == "join"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: TIMED[0].join(CLICKS, "id"), "clicks has no withWatermark()"),
        (lambda: SHOWN.join(CLICKS, "id", "left"), "shown has no withWatermark()"),
        (lambda: TIMED[0].join(TIMED[1], "id", "left_semi"), "how='left_semi' is none of inner"),
        (lambda: TIMED[0].join(TIMED[1], "id", time="at"), "time= is the column of withWatermark()"),
        (lambda: TIMED[0].join(TIMED[1], []), "on=[] is neither"),
        (lambda: TIMED[0].join(TIMED[1], "id", within="200000 days"), "within='200000 days' is too long"),
        (lambda: TIMED[0].withColumnRenamed("AT", "b").join(TIMED[1], "id"), "may change or drop column at of shown"),
        (lambda: TIMED[0].join(TIMED[1].select("id").alias("c"), "id"), "may change or drop column at of c"),
    ],
)
def test_what_can_not_be_paired_is_refused(wrong: Callable[[], Stream], reason: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        wrong()
    assert caught.value.condition == "JOIN_INVALID"
    assert reason in str(caught.value)


SOLD = Stream(ProcessorNode(name="sold")).withWatermark("at", "1 second")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_time_of_a_result_is_that_of_its_left_record(how: str) -> None:
    both = TIMED[0].join(TIMED[1], "id", how, within="1 hour").where("n > 1").alias("both")
    found = join_of(both.join(SOLD, "id", "full", within="1 hour"))
    assert found.names == ("both", "sold")
    assert [each.delay_us for each in found.watermarks] == [10_000_000, 1_000_000]
    third = join_of(both.join(SOLD, "id", within="1 hour").join_asof(TIMED[1], "id"))
    assert third.watermarks[0].delay_us == 10_000_000


@pytest.mark.parametrize(
    ("join", "part"),
    [
        (
            lambda: TIMED[0].join(TIMED[1], "id", "full", within="1 hour").join(SOLD, "id", "left"),
            "a full join of shown",
        ),
        (
            lambda: TIMED[0].join(TIMED[1], "id", "right", within="1 hour").join_asof(SOLD, "id"),
            "a right join of shown",
        ),
        (
            lambda: TIMED[0].join(TIMED[1], "id").withWatermark("right_at", "1 second").join(SOLD, "id"),
            "withWatermark() of shown comes after a join",
        ),
        (lambda: TIMED[0].join(TIMED[1], "id").drop("at").join(SOLD, "id"), "may change or drop column at of shown"),
    ],
)
def test_results_without_the_time_of_a_left_record_can_not_be_joined(join: Callable[[], Stream], part: str) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        join()
    assert caught.value.condition == "JOIN_INVALID"
    assert part in str(caught.value)
