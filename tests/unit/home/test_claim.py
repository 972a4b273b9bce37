"""The claim of an owner on its home, with a partition in memory: copies, owners that ended, and owners that wait."""

import json
import os
import subprocess
from dataclasses import asdict, replace
from typing import NoReturn

import pytest

import falkirk as fk
from falkirk.errors import HomeError, StoreError
from falkirk.kafka_client.connection import Connection
from falkirk.platform.traced import OFF
from falkirk.recovery.ownership import claim as module
from falkirk.recovery.ownership.claim import FENCED_S, MARK, REPLACED_S, Claim, Owner, refuse_copied
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.measurements import UNKNOWN
from falkirk.runtime.supervision.start import assemble_host
from tests.unit.home.claims import Copies, Partition, copied


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
    matches: bool, copies: Copies, partition: Partition
) -> None:
    home = copies.open("first")
    partition.claimed_by(replace(Owner.of(home), machine="another", generation=7), home)
    copies.claim(home).await_former(replaced=("another", 7 if matches else 6))
    assert sum(copies.clock.waits) == pytest.approx(REPLACED_S if matches else FENCED_S, abs=0.2)


def test_a_copy_that_claimed_while_an_owner_planned_is_found_before_the_first_write(
    copies: Copies, partition: Partition
) -> None:
    copies.copy("second")
    planning = copies.claim(copies.open("first"))
    assert not planning.former
    copies.claim(copies.open("second"))
    with pytest.raises(HomeError) as caught:
        planning.await_former()
    assert caught.value.condition == "HOME_COPIED"


def test_a_home_of_which_a_copy_runs_is_refused_before_anything_is_planned(copies: Copies) -> None:
    """Planning takes seconds, and writes into the home."""

    def session_of(app: fk.App) -> NoReturn:
        raise AssertionError("the session comes after the claim")

    home = copies.open("first")
    (home.path / MARK).write_text("another")
    with pytest.raises(HomeError) as caught:
        assemble_host(
            fk.App("copied"), Connection.of("localhost:1"), home, session_of, create_topics=False, is_once=False,
            launch=UNKNOWN, failures=Failures(), recorder=OFF, on_claim=lambda claim: None,
        )  # fmt: skip
    assert caught.value.condition == "HOME_COPIED"


WAITS = {"elsewhere", "elsewhere, and one that ended", "unreadable"}


@pytest.mark.parametrize(
    "former", ["ended", "ends", "suspended", "released", "in this folder", "nobody", *sorted(WAITS)]
)
def test_nothing_begins_before_the_former_owner_has_ended(copies: Copies, partition: Partition, former: str) -> None:
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
        if former == "ends":
            copies.clock.meanwhile = lambda: (child.kill(), child.wait())
        if former == "suspended":
            with pytest.raises(HomeError) as caught:
                claim.await_former()
            assert (caught.value.condition, caught.value.parameters["pids"]) == ("LEFTOVER_ALIVE", [child.pid])
            return
        claim.await_former()
        waited_s = sum(copies.clock.waits)
        assert (waited_s > 0.9 * FENCED_S) is (former in WAITS)
        assert (waited_s > 0) is (former == "ends" or former in WAITS)
    finally:
        child.kill()
        child.wait()
