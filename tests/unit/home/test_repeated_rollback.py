"""A rollback that a command asks for is carried out once, although an answer was lost and its user repeats it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import FalkirkError, HomeError, StoreError
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store import requests as request_store
from falkirk.recovery.decision_store.engine import Database
from falkirk.recovery.decision_store.requests import asked_by
from falkirk.recovery.ownership.requests import ask_for_rollback, fail_former, is_rolled_back
from falkirk.recovery.protocol.rollback import RollbackDecision
from falkirk.runtime.supervision.rollback_requests import RollbackRequests
from falkirk.theory.ids import CheckpointNumber
from tests.support import wait_until

ASKED = {"prices": CheckpointNumber(3)}


class Host:
    """A running application that only takes requests to roll back."""

    def __init__(self, store: Store) -> None:
        self._store, self.carried_out = store, list[Any]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            if (request := self._store.take_request("rollback")) is not None:
                self.carried_out.append(request.arguments["asked"])
                self._store.answer_request(request.request, {"goes": request.arguments["asked"]})

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """The store as the application and as a command see it."""
    pair = Store(tmp_path / "store"), Store(tmp_path / "store")
    yield pair
    for store in pair:
        store.close()


def lose_the_next_answer(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Let the connection of the next write end after its commit."""
    database, transaction = store._database, store._database.transaction

    @contextmanager
    def lost(*, writes: bool) -> Iterator[Any]:
        with transaction(writes=writes) as connection:
            yield connection
        if writes:
            monkeypatch.undo()
            database.note_uncertain()
            raise Database.away(database, "the connection was lost", "maybe")

    monkeypatch.setattr(database, "transaction", lost)


@pytest.mark.parametrize("joins", [True, False])
def test_a_request_whose_answer_from_the_store_was_lost_is_carried_out_once(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    if not joins:
        monkeypatch.setattr(request_store, "_unseen", lambda *_: None)
        monkeypatch = pytest.MonkeyPatch()
    lose_the_next_answer(monkeypatch, stores[1])
    with suppress(FalkirkError):  # then its user repeats the command
        ask_for_rollback(stores[1], ASKED, force=True, timeout_s=0.1)
    host = Host(stores[0])
    ask_for_rollback(stores[1], ASKED, force=True, timeout_s=30)
    host.close()
    assert len(host.carried_out) == 1 if joins else len(host.carried_out) > 1


def test_a_repeated_command_gets_the_answer_that_the_first_one_did_not_await(stores: tuple[Store, Store]) -> None:
    with pytest.raises(HomeError) as unanswered:
        ask_for_rollback(stores[1], ASKED, force=True, timeout_s=0)
    assert unanswered.value.condition == "REQUEST_UNANSWERED"
    host = Host(stores[0])
    wait_until(lambda: host.carried_out, 30, "the rollback")
    ask_for_rollback(stores[1], ASKED, force=True, timeout_s=30)
    assert host.carried_out == [ASKED], "it is carried out once"
    ask_for_rollback(stores[1], ASKED, force=True, timeout_s=30)
    host.close()
    assert host.carried_out == [ASKED, ASKED], "whoever has an answer may ask again"


@pytest.mark.parametrize("decided", [True, False])
def test_a_request_of_a_dead_host_was_carried_out_if_a_recovery_names_it(
    stores: tuple[Store, Store], decided: bool
) -> None:
    """Before, the answer was that it may be done or not. A repeated request took back results twice."""
    number, _ = stores[1].join_request("rollback", {"asked": ASKED, "force": True, "to": "prices@3"}, ("to", "force"))
    assert stores[0].take_request("rollback") is not None
    if decided:
        stores[0].open_recovery(asked_by(number), {"prices": CheckpointNumber(3), "sales": None})
    fail_former(stores[0])
    request = stores[1].request(number)
    assert request is not None
    if not decided:
        assert (request.state, request.answer) == ("failed", {"reason": "the application ended before it was done"})
        return
    assert (request.state, request.answer) == ("done", {"goes": ASKED})
    assert is_rolled_back(stores[1], ASKED, force=True)
    assert not is_rolled_back(stores[1], ASKED, force=True), "its user knows now"


class Failing:
    """A recovery that fails on the store, after its decision was recorded or before."""

    def __init__(self, store: Store, *, decided: bool) -> None:
        self._store, self._decided = store, decided

    def recover(self, *, asked: dict[str, CheckpointNumber], force: bool, reason: str) -> RollbackDecision:
        if self._decided:
            self._store.open_recovery(reason, {**asked})
        raise StoreError("STORE_AWAY", "away.", certainty="maybe")


@pytest.mark.parametrize("decided", [True, False])
def test_a_host_that_meets_an_error_answers_as_the_store_says(stores: tuple[Store, Store], decided: bool) -> None:
    """Before, it said that the rollback had failed, and finished it in its next turn."""
    number, _ = stores[1].join_request("rollback", {"asked": ASKED, "force": True, "to": "prices@3"}, ("to", "force"))
    requests = RollbackRequests(stores[0], lambda line: None)
    assert requests.are_there()
    with pytest.raises(StoreError):
        requests.answer(Failing(stores[0], decided=decided).recover)
    request = stores[1].request(number)
    assert request is not None
    assert request.state == ("done" if decided else "failed")
    assert not requests.are_there()


def test_a_host_that_could_not_answer_does_so_in_its_next_turn(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, _ = stores[1].join_request("rollback", {"asked": ASKED, "force": True, "to": "prices@3"}, ("to", "force"))
    requests = RollbackRequests(stores[0], lambda line: None)
    lose_the_next_answer(monkeypatch, stores[0])  # to the take of the request
    with pytest.raises(StoreError):
        requests.answer(Failing(stores[0], decided=True).recover)
    taken = stores[1].request(number)
    assert taken is not None
    assert taken.state == "taken"
    assert not requests.are_there()
    request = stores[1].request(number)
    assert request is not None
    assert request.state == "failed", "no recovery names it, so it can be repeated"
