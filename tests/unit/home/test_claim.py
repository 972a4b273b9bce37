"""The claim of an owner on its home, with a partition in memory: copies, owners that ended, and owners that wait."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import HomeError, LogError, StoreError
from falkirk.home import claim as module
from falkirk.home import guard
from falkirk.home.claim import MARK, Claim, Owner, refuse_copied
from falkirk.home.folder import Home, open_home
from falkirk.kafka.connection import Connection
from falkirk.kafka.internal import internal_topic


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
        monkeypatch.setattr(module, "Topics", lambda connection: topics)
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
    """A home, and copies of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack = folder, ExitStack()
        open_home(self.path("first"), "copied").close()

    def path(self, name: str) -> Path:
        return self.folder / name

    def copy(self, name: str) -> Path:
        shutil.copytree(self.path("first"), self.path(name))
        return self.path(name)

    def open(self, name: str) -> Home:
        return self._stack.enter_context(open_home(self.path(name), "copied"))

    def claim(self, home: Home) -> Claim:
        claim = Claim(Connection("localhost:1"), home)
        self._stack.callback(claim.close)
        return claim

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> Partition:
    return Partition(monkeypatch)


@pytest.fixture
def copies(partition: Partition, tmp_path: Path) -> Iterator[Copies]:
    made = Copies(tmp_path)
    yield made
    made.close()


def copied(claim: Claim) -> HomeError:
    with pytest.raises(HomeError) as caught:
        claim.check()
    assert caught.value.condition == "HOME_COPIED"
    return caught.value


@pytest.mark.parametrize("looks", [True, False])
def test_the_older_of_two_owners_is_refused_and_stays_so(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    copies.copy("second")
    first, second = copies.open("first"), copies.open("second")
    assert first.identity == second.identity
    older = copies.claim(first)
    older.check()
    if not looks:
        monkeypatch.setattr(older, "_read", lambda timeout_s: None)
    newer = copies.claim(second)
    assert newer.former == [older._mine]
    newer.check()
    if not looks:
        older.check()  # both write: the test detects it
        return
    error = copied(older)
    assert error.parameters["by"] == str(newer._mine)
    assert str(second.path) in str(error)
    with pytest.raises(HomeError) as again:  # for example, by a supervisor
        copies.claim(first)
    assert again.value.parameters == error.parameters
    newer.check()
    (first.path / MARK).unlink()
    third = copies.claim(first)
    assert copied(newer).parameters["by"] == str(third._mine)
    with pytest.raises(HomeError):
        refuse_copied(second.path)


def test_a_copy_is_found_although_the_topic_of_claims_was_made_again(copies: Copies, partition: Partition) -> None:
    """The claim of the copy has a smaller offset than that of the older owner, which took it for a former one."""
    copies.copy("second")
    first = copies.open("first")
    copies.claim(first)
    older = copies.claim(first)
    partition.make_again()
    older.check()
    newer = copies.claim(copies.open("second"))
    assert copied(older).parameters["by"] == str(newer._mine)
    newer.check()


def test_a_newcomer_waits_for_an_unknown_owner_if_the_topic_of_claims_was_made_again(
    copies: Copies, partition: Partition
) -> None:
    """It had the claims of all former owners, perhaps of one that still runs."""
    home = copies.open("first")
    assert copies.claim(home).former == []
    partition.make_again()
    assert copies.claim(home).former == [Owner.read(None)]
    assert copies.claim(home).former == []


def test_what_cannot_be_read_at_present_is_looked_at_later(copies: Copies, partition: Partition) -> None:
    copies.copy("second")
    older, second = copies.claim(copies.open("first")), copies.open("second")
    partition.is_away = True
    older.check()
    partition.is_away = False
    copies.claim(second)
    partition.is_away = True
    older.check()
    partition.is_away = False
    copied(older)
    partition.is_away = True
    copied(older)


def test_a_copy_is_refused_though_the_store_is_away(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would continue to publish live results. The store may be another one, so the home is not marked."""
    copies.copy("second")
    first = copies.open("first")
    older = copies.claim(first)

    def away() -> None:
        raise StoreError("STORE_AWAY", "away.")

    monkeypatch.setattr(first.store, "require_charge", away)
    older.check()
    copies.claim(copies.open("second"))
    copied(older)
    assert not (first.path / MARK).exists()


def test_who_starts_again_in_one_folder_is_no_copy(copies: Copies, partition: Partition) -> None:
    """That includes a claim of a dead host that the broker appends late."""
    home = copies.open("first")
    former, present = copies.claim(home), copies.claim(home)
    partition.claimed_by(replace(former._mine, at_s=0.0), home)
    former.check()
    present.check()
    assert not (home.path / MARK).exists()


@pytest.mark.parametrize("verifies", [True, False])
@pytest.mark.parametrize("forged", ["nothing", "unsigned", "of another secret", "repeated"])
def test_a_forged_claim_ends_no_owner_and_is_named(
    copies: Copies, partition: Partition, monkeypatch: pytest.MonkeyPatch, forged: str, verifies: bool
) -> None:
    """Before, one record of anybody's in the topic ended the application, and kept it from starting again."""
    if not verifies:
        monkeypatch.setattr(Claim, "_is_believed", lambda self, owner, message: True)
    copies.copy("second")
    home = copies.open("first")
    other = replace(Owner.of(home), machine="another", home="elsewhere", at_s=9e9)
    if forged == "repeated":  # who once had a copy
        partition.claimed_by(other, home)
    older = copies.claim(home)
    with open_home(copies.folder / "stranger", "copied") as stranger:
        if forged == "nothing":
            partition.append(b"")
        elif forged == "unsigned":
            partition.append(json.dumps(asdict(other)).encode())
        elif forged == "of another secret":
            key, topic = stranger.store.signing_key(), older.topic
            partition.append(other.signed(key, topic))
        else:
            partition.append(partition.values[0])
    if not verifies:
        copied(older)
        return
    older.check()
    assert not (home.path / MARK).exists()
    (told,) = older.foreign_records()
    assert (told["topic"], told["count"], told["offset"]) == (older.topic, 1, len(partition.values) - 1)
    newer = copies.claim(copies.open("second"))
    assert older._mine in newer.former
    assert copied(older).parameters["by"] == str(newer._mine), "a copy is still found out"


def test_a_newcomer_waits_as_for_an_unknown_owner_where_records_may_hide_one(
    copies: Copies, partition: Partition
) -> None:
    for _ in range(3):
        partition.append(b"forged")
    claim = copies.claim(copies.open("first"))
    assert claim.former == [Owner.read(None)]
    assert claim.forged == (3, 0)


def test_a_home_of_an_earlier_version_believes_any_claim(
    copies: Copies, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copies may have other secrets."""
    home = copies.open("first")
    key = replace(home.store.signing_key(), since_birth=False)
    monkeypatch.setattr(home.store, "signing_key", lambda: key)
    older = copies.claim(home)
    partition.append(b"of a copy")
    copied(older)


def test_an_owner_with_the_same_store_is_told_from_a_copy(copies: Copies) -> None:
    """The folder was moved while a process in it continued to run."""
    older = copies.claim(copies.open("first"))
    os.symlink(copies.path("first"), copies.path("second"))
    (copies.path("first") / "lock").unlink()
    newer = copies.claim(copies.open("second"))
    with pytest.raises(StoreError) as caught:
        older.check()
    assert caught.value.condition == "HOME_TAKEN_OVER"
    newer.check()
    assert not (copies.path("first") / MARK).exists()


def test_a_replaced_owner_claims_nothing(copies: Copies, partition: Partition) -> None:
    """It stood still before its claim, which would end its successor as that of a copy."""
    former = copies.open("first")
    os.symlink(copies.path("first"), copies.path("second"))
    (copies.path("first") / "lock").unlink()
    present = copies.claim(copies.open("second"))
    with pytest.raises(StoreError) as caught:
        copies.claim(former)
    assert caught.value.condition == "HOME_TAKEN_OVER"
    present.check()


@pytest.mark.parametrize("matches", [True, False])
def test_an_owner_elsewhere_whose_lease_was_over_is_awaited_briefly(
    matches: bool, copies: Copies, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FENCED_S", 3.0)
    monkeypatch.setattr(module, "REPLACED_S", 0.2)
    home = copies.open("first")
    partition.claimed_by(replace(Owner.of(home), machine="another", generation=7), home)
    claim, begun_s = copies.claim(home), module.time.monotonic()
    claim.await_former(replaced=("another", 7 if matches else 6))
    assert (module.time.monotonic() - begun_s < 2.5) is matches


@pytest.mark.parametrize(("boots", "has_ended"), [(("a", "b"), None), (("", ""), True)])
def test_an_owner_of_another_boot_is_not_taken_for_dead(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, boots: tuple[str, str], has_ended: bool | None
) -> None:
    """The namespaces of two machines may have equal numbers. Without the boot in its name, another machine is this one.

    Then the number of its process is looked for here, where it is not found.
    """
    there, here = boots
    home = copies.open("first")
    monkeypatch.setattr(module.processes, "_boot", lambda: there)
    owner = replace(Owner.of(home), pid=(1 << 22) + 1, home="/a/copy")
    monkeypatch.setattr(module.processes, "_boot", lambda: here)
    assert owner.has_ended() is has_ended


@pytest.mark.parametrize("waits", [True, False])
def test_an_owner_that_is_not_visible_has_ended_before_the_newcomer_begins(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """It looks at the claims from time to time, and writes in between."""
    copies.copy("second")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(module.processes, "machine", lambda: "another")
        older = copies.claim(copies.open("first"))
    ended, now_s = list[float](), [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if now_s[0] % guard._POLL_S < seconds and not ended:
            with suppress(HomeError):
                older.check()
                return
            ended.append(now_s[0])

    if not waits:
        monkeypatch.setattr(module, "FENCED_S", 0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep, time=time.time))
    newer = copies.claim(copies.open("second"))
    assert newer.former == [older._mine]
    now_s[0] += 0.01  # the claim itself took some time
    newer.await_former()
    assert bool(ended) is waits


WAITS = {"elsewhere", "elsewhere, and one that ended", "unreadable"}


@pytest.mark.parametrize(
    "former", ["ended", "ends", "suspended", "released", "in this folder", "nobody", *sorted(WAITS)]
)
def test_nothing_begins_before_the_former_owner_has_ended(
    copies: Copies, partition: Partition, monkeypatch: pytest.MonkeyPatch, former: str
) -> None:
    monkeypatch.setattr(module, "FENCED_S", 1.0)
    home, child = copies.open("first"), subprocess.Popen(["sleep", "1000"])
    try:
        copies.copy("second")
        began = module.processes.began(child.pid)
        owner = replace(Owner.of(home), home=str(copies.path("second")), pid=child.pid, began=began)
        if former == "in this folder":
            owner = replace(owner, home=str(home.path))
        if former == "ended":
            child.kill()
        if former in ("ends", "suspended"):
            copies.open("second")
        if former.startswith("elsewhere"):
            partition.claimed_by(replace(owner, machine="another"), home)
        if former == "unreadable":
            partition.append(b"of a later version")
        elif former not in ("nobody", "elsewhere"):
            partition.claimed_by(owner, home)
        claim = copies.claim(home)
        assert len(claim.former) == len(partition.values) - 1 - (former == "in this folder")
        waited: list[float | HomeError] = []

        def wait() -> None:
            begun_s = module.time.monotonic()
            try:
                claim.await_former()
                waited.append(module.time.monotonic() - begun_s)
            except HomeError as error:
                waited.append(error)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        if former == "ends":
            assert not waited
            child.kill()
        waiting.join(30)
        (result,) = waited
        if isinstance(result, HomeError):
            assert (former, result.condition, result.parameters["pids"]) == ("suspended", "LEFTOVER_ALIVE", [child.pid])
        else:
            assert former != "suspended"
            assert (result > 0.9) is (former in WAITS)
    finally:
        child.kill()
        child.wait()
