"""A rollback that a command asks for is carried out once, although its first answer was lost and its user repeats it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import HomeError, StoreError
from falkirk.home.requests import ask_for_rollback
from falkirk.store import Store
from falkirk.store.engine import Database
from falkirk.theory.ids import PointNumber
from tests.support import wait_until

ASKED = {"prices": PointNumber(3)}


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


def test_a_request_whose_answer_from_the_store_was_lost_is_carried_out_once(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_next_answer(monkeypatch, stores[1])
    with suppress(StoreError):  # then its user repeats the command
        ask_for_rollback(stores[1], ASKED, force=True, timeout_s=0.1)
    host = Host(stores[0])
    ask_for_rollback(stores[1], ASKED, force=True, timeout_s=30)
    host.close()
    assert host.carried_out == [ASKED]


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
