"""A replica takes over from a PostgreSQL server that was killed, and lacks commits that the server had confirmed."""

from contextlib import closing

import pytest

from falkirk.recovery.decision_store import Store
from tests.postgres import Postgres, Replica
from tests.support import outcome, wait_until


def numbers(store: Store) -> list[int]:
    return [decision.number for decision in store.decisions("epoch", "words")]


def test_an_owner_ends_if_the_server_that_took_over_lacks_its_decisions(
    postgres: Postgres, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replication is asynchronous. The second application counts no writes, and decides anew what it had decided."""
    with closing(Replica(postgres)) as replica:
        url = postgres.url(host=f"{postgres.folder},{replica.folder}")
        with closing(Store(url, identity=f"{tag}a")) as owner, closing(Store(url, identity=f"{tag}b")) as other:
            for store in (owner, other):
                store.take_charge("the owner")
                store.record_decision("epoch", "words", 0, "everywhere")
            monkeypatch.setattr(other._own, "count", lambda db: 0)
            replica.await_all()
            replica.cut_off()
            for store in (owner, other):
                store.record_decision("epoch", "words", 1, "lost")
                assert numbers(store) == [0, 1]
            postgres.kill()
            try:
                replica.promote()
                decided = []
                for store in (owner, other):
                    wait_until(lambda store=store: outcome(store.newest_recovery) != "STORE_AWAY", 60, "the replica")
                    decided.append(outcome(lambda store=store: store.record_decision("epoch", "words", 1, "anew")))
                assert decided == ["STORE_FELL_BACK", None]
                assert [numbers(store) for store in (owner, other)] == [[0], [0, 1]]
            finally:
                postgres.start()
