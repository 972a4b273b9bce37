"""Sinks of the user: the refusals of their declaration, and the effects of errors in their code."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

import falkirk as fk
from falkirk.declare.accepted import as_endpoint
from falkirk.declare.sink import OwnSink
from falkirk.errors import DefinitionError, SparkError
from falkirk.errors.location import caller
from falkirk.plan.topics import check_declared
from falkirk.runtime.spark.sinks import asking
from falkirk.runtime.spark.sinks.own import OwnTarget


class Store:
    """A sink that keeps its epochs in memory."""

    def __init__(self, address: Any = "a store") -> None:
        self.address, self.epochs = address, list[int]()

    def delivered(self) -> Any:
        return max(self.epochs, default=-1) + 1

    def deliver(self, epoch: int, rows: Any) -> None:
        self.epochs.append(epoch)


def checked(sink: fk.Sink) -> fk.Sink:
    """Return a sink, which the type checker takes for one."""
    return sink


def target(sink: Any) -> OwnTarget:
    """Return the target of a sink."""
    declared = as_endpoint(checked(sink), caller())
    assert isinstance(declared, OwnSink)
    return OwnTarget(declared, "out")


class Rows:
    """An epoch's rows."""

    def coalesce(self, number: int) -> "Rows":
        return self

    sortWithinPartitions = drop = coalesce


def deliver(to: OwnTarget, epoch: int) -> None:
    """Deliver an epoch."""
    to.deliver(epoch, cast(Any, Rows()), few=True)


def failure(act: Callable[[], object]) -> str:
    """Return the message of a failure after which the release is tried again."""
    with pytest.raises(SparkError) as error:
        act()
    assert error.value.condition == "RELEASE_FAILED"
    return error.value.message


class Unreadable(Store):
    """A sink whose address is computed, and fails."""

    @property
    def address(self) -> str:  # type: ignore[override]
        raise OSError("no network")

    @address.setter
    def address(self, value: str) -> None: ...


@pytest.mark.parametrize(
    ("sink", "condition"),
    [
        (Store, "NOT_AN_ENDPOINT"),  # the class, not an object
        (SimpleNamespace(address="a", delivered=lambda: 0), "NOT_AN_ENDPOINT"),
        (SimpleNamespace(address="a", delivered=0, deliver=print), "SINK_INVALID"),
        (Store(""), "SINK_INVALID"),
        (Store(7), "SINK_INVALID"),
        (Store("two\nlines"), "SINK_INVALID"),
        (Store("x" * 201), "SINK_INVALID"),
        (Unreadable(), "SINK_INVALID"),
    ],
)
def test_what_is_no_sink_is_refused(sink: Any, condition: str) -> None:
    app = fk.App("shop")
    app.source("orders", fk.Kafka("orders", schema="n INT"))
    with pytest.raises(DefinitionError) as refused:
        app.sink("out", "orders", sink)
    assert refused.value.condition == condition
    assert refused.value.where.file == __file__  # type: ignore[attr-defined]  # it is a SourceLocation


def test_two_sinks_with_one_address_are_refused() -> None:
    app = fk.App("shop")
    app.sink("one", "orders", Store("here"))
    app.sink("two", "orders", Store("there"))
    check_declared(app)
    app.sink("three", "orders", Store("here"))
    with pytest.raises(DefinitionError) as refused:
        check_declared(app)
    assert refused.value.condition == "SINK_SHARED"
    assert refused.value.parameters == {"address": "here", "other": "one", "sink": "three"}


def test_an_address_shows_no_password() -> None:
    declared = as_endpoint(Store("https://me:secret@host/orders"), caller())
    assert declared.address == "https://…@host/orders"
    assert "secret" not in repr(declared)


def test_an_epoch_is_delivered_once_and_a_number_may_be_missing() -> None:
    store = Store()
    for epoch in (0, 0, 3, 1, 3):
        deliver(target(store), epoch)
    assert store.epochs == [0, 3]


@pytest.mark.parametrize("answer", [None, "3", 2.0, True, -1])
def test_an_answer_that_is_no_number_of_epochs_is_a_failure(answer: Any) -> None:
    store = Store()
    store.delivered = lambda: answer  # type: ignore[method-assign]
    assert f"delivered() returned {answer!r}" in failure(target(store).visible)
    assert f"delivered() returned {answer!r}" in failure(lambda: deliver(target(store), 0))
    assert store.epochs == []


@pytest.mark.parametrize("took", [(), (0, 1)])
def test_a_sink_that_did_not_take_exactly_the_epoch_has_failed(took: tuple[int, ...]) -> None:
    """Otherwise epochs that it does not have would count as published."""
    store = Store()
    store.deliver = lambda epoch, rows: store.epochs.extend(took)  # type: ignore[method-assign]
    assert "deliver(0, …) succeeded" in failure(lambda: deliver(target(store), 0))


@pytest.mark.parametrize("call", ["delivered", "deliver"])
def test_an_exception_is_a_failure_that_is_logged_once(call: str, caplog: pytest.LogCaptureFixture) -> None:
    store = Store()

    def fail(*arguments: Any) -> None:
        raise ConnectionError("503 from https://me:secret@host/orders\nmore")

    setattr(store, call, fail)
    to = target(store)
    for _ in range(2):
        assert failure(lambda: deliver(to, 0)).endswith("raised ConnectionError: 503 from https://…@host/orders.")
    assert len(caplog.records) == 1
    delattr(store, call)
    deliver(to, 0)
    assert store.epochs == [0]


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """An event for which a sink waits; it happens at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_sink_that_does_not_answer_keeps_nobody_waiting(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_S", 0.05)
    store, asked = Store(), list[int]()

    def delivered() -> int:
        asked.append(1)
        released.wait()
        return 0

    store.delivered = delivered  # type: ignore[method-assign]
    to = target(store)
    assert "within 0.05 s" in failure(to.visible)
    assert "yet" in failure(to.visible)
    assert len(asked) == 1, "one thread waits for it, however often it is asked"


def test_a_try_that_still_runs_is_the_only_one(released: threading.Event) -> None:
    """An application that was stopped may leave a thread that still writes when the next one starts."""
    begun, store = threading.Event(), Store()

    def slow(epoch: int, rows: Any) -> None:
        begun.set()
        released.wait()
        store.epochs.append(epoch)

    store.deliver = slow  # type: ignore[method-assign]
    former = threading.Thread(target=deliver, args=(target(store), 0))
    former.start()
    assert begun.wait(10)
    later = Store(store.address)
    later.epochs = store.epochs
    assert "an earlier deliver() still runs" in failure(lambda: deliver(target(later), 0))
    released.set()
    former.join(10)
    deliver(target(later), 0)
    assert store.epochs == [0]
