"""A region that ends because of a stray connection is retried without limit: it never ends the application."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.errors import SparkError
from falkirk.runtime.spark.causes import is_stray
from falkirk.runtime.spark.retry import FAILURES_MAX, PAUSES_S
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision import supervised_region
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.supervised import Supervision
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from tests.clock import MovedClock

SPARK = "\tat org.apache.spark."
ABORTED = "Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times: Lost task 0.0 (TID 4): java.lang."
#: Shortened errors of Spark 4.3: for an HTTP request, a message that ends too early, and a missing reader.
STRAYS = [
    "IllegalArgumentException: Too large frame: 5135603447297303840\n"
    f"{SPARK}network.util.JavaUtils.checkArgument(JavaUtils.java:759)\n"
    f"{SPARK}network.util.TransportFrameDecoder.decodeNext(TransportFrameDecoder.java:147)\n",
    "IndexOutOfBoundsException: readerIndex(4) + length(4) exceeds writerIndex(7)\n"
    "\tat io.netty.buffer.AbstractByteBuf.readInt(AbstractByteBuf.java:816)\n"
    f"{SPARK}network.shuffle.streaming.StreamingShuffleMessage.decode(StreamingShuffleMessage.java:129)\n",
    "ArrayIndexOutOfBoundsException: Index 99 out of bounds for length 2\n"
    f"{SPARK}shuffle.streaming.StreamingShuffleServerHandler.receive(StreamingShuffleServerHandler.scala:73)",
]
OTHERS = [
    "RuntimeException: [DIVIDE_BY_ZERO]\n\tat org.apache.spark.sql.Whatever.eval(Whatever.scala:1)",
    # A message of Spark's own is decoded well below a frame, and a record may contain any text.
    f"IOException: broken\n{SPARK}network.util.TransportFrameDecoder.channelRead(TransportFrameDecoder.java:101)",
    "RuntimeException: a record said TransportFrameDecoder.decodeNext and StreamingShuffleServerHandler",
]


@pytest.mark.parametrize(("text", "stray"), [*((t, True) for t in STRAYS), *((t, False) for t in OTHERS)])
def test_what_spark_says_of_it_is_known(text: str, stray: bool) -> None:
    assert is_stray(RuntimeError(ABORTED + text)) is stray
    outer: Any = RuntimeError("the query ended")
    outer._cause = RuntimeError(ABORTED + text)
    assert is_stray(outer) is stray


class Live:
    """A region whose query always ends at once with the same error."""

    region, ready_at_s, observations = SimpleNamespace(name="counts", where=None, sources=()), 0.0, None
    opening, files = None, SimpleNamespace(location="")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.query: object = None

    def failure(self) -> Exception:
        return self.error

    def end(self, reason: str) -> None:
        self.query = None


def failing(
    error: Exception, times: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[RegionStatus, list[float], list[str]]:
    """Let a region fail repeatedly without a checkpoint; return its status, the pauses before retries, and the log."""
    said, pauses = list[str](), list[float]()
    monkeypatch.setattr(supervised_region, "fatal_of", lambda *about: None)
    for name in ("damage_of", "damage_of_state"):
        monkeypatch.setattr(supervised_region, name, lambda *about: None)
    context = SimpleNamespace(home=SimpleNamespace(checkpoint=lambda name: None), clock=MovedClock(0.0))
    watch = Supervision(context=cast(Any, context), failures=Failures(), say=said.append)
    live = Live(error)
    watched = SupervisedRegion(cast(Any, live), watch)
    for _ in range(times):
        live.query = "runs"
        watched.poll()
        pauses.append(live.ready_at_s)
        watched.count_failure("failed")
    return watched.status, pauses, said


def test_strays_end_a_region_again_and_again_and_never_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the sixth stray connection in a row ended it."""
    often = FAILURES_MAX * 2
    status, pauses, said = failing(RuntimeError(ABORTED + STRAYS[0]), often, monkeypatch)
    assert (status.state, status.restarts) == ("restarting", often)
    assert pauses == [*PAUSES_S, *[PAUSES_S[-1]] * (often - len(PAUSES_S))]
    assert all("stray connection" in line for line in said)


def test_a_region_that_runs_out_of_memory_gets_a_new_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default Spark ends its JVM for that, which Falkirk keeps it from."""
    with pytest.raises(SparkError) as error:
        failing(RuntimeError(ABORTED + "OutOfMemoryError: Java heap space"), 1, monkeypatch)
    assert error.value.condition == "SESSION_LOST"
    _, _, said = failing(RuntimeError("SparkOutOfMemoryError: a task has used what it may"), 1, monkeypatch)
    assert len(said) == 1, "that is no fault of the JVM's"


def test_other_failures_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkError) as error:
        failing(RuntimeError(ABORTED + OTHERS[0]), FAILURES_MAX, monkeypatch)
    assert error.value.condition == "REGION_KEEPS_FAILING"
