"""A topic of claims in memory, and copies of a home."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import HomeError, LogError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.internal import internal_topic
from falkirk.recovery.ownership import claim as module
from falkirk.recovery.ownership.claim import Claim, Owner
from falkirk.recovery.ownership.folder import Home, open_home
from tests.clock import MovedClock


class Partition:
    """The only partition of the topic of claims."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: list[bytes] = []
        self.is_away = False
        self.id = 0
        partition = self

        class Reader:
            def __init__(self, connection: object, topic: str, first: Mapping[int, int]) -> None:
                self.positions = dict(first)

            def poll(self, timeout_s: float) -> list[Any]:
                if partition.is_away:
                    raise LogError("TOPIC_MISSING", "gone.")
                begin, self.positions[0] = self.positions[0], len(partition.values)
                if begin > len(partition.values):
                    begin = 0  # as `auto.offset.reset` says
                return [
                    SimpleNamespace(offset=lambda o=o: o, value=lambda o=o: partition.values[o])
                    for o in range(begin, len(partition.values))
                ]

            def close(self) -> None:
                pass

        monkeypatch.setattr(module, "Reader", Reader)
        topics = SimpleNamespace(create=lambda *_: None, identity=lambda topic: str(self.id))
        monkeypatch.setattr(module, "Topics", lambda connection, timeout_s=0.0: topics)
        monkeypatch.setattr(module, "_append", lambda connection, topic, value: self.append(value))

    def append(self, value: bytes) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def make_again(self) -> None:
        """Delete the topic and create it again."""
        self.values.clear()
        self.id += 1

    def claimed_by(self, owner: Owner, home: Home) -> None:
        topic = internal_topic(home.application, home.identity, "owner.claims")
        self.append(owner.signed(home.store.signing_key(), topic))


class Copies:
    """A home, and copies of it, whose owners have one clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack, self.clock = folder, ExitStack(), MovedClock()
        open_home(self.path("first"), "copied").close()

    def path(self, name: str) -> Path:
        return self.folder / name

    def copy(self, name: str) -> Path:
        shutil.copytree(self.path("first"), self.path(name))
        return self.path(name)

    def open(self, name: str) -> Home:
        return self._stack.enter_context(open_home(self.path(name), "copied"))

    def claim(self, home: Home) -> Claim:
        claim = Claim(Connection("localhost:1"), home, self.clock)
        self._stack.callback(claim.close)
        return claim

    def close(self) -> None:
        self._stack.close()


def copied(claim: Claim) -> HomeError:
    with pytest.raises(HomeError) as caught:
        claim.check()
    assert caught.value.condition == "HOME_COPIED"
    return caught.value
