"""Claims of owners that are not visible: on another machine, of another boot, or in a topic that was replaced."""

from contextlib import suppress
from dataclasses import replace

import pytest

from falkirk.errors import HomeError, LogError
from falkirk.recovery.ownership import claim as module
from falkirk.recovery.ownership import guard
from falkirk.recovery.ownership.claim import LOOK_S, MARK, Claim, Owner
from falkirk.recovery.ownership.folder import open_home
from tests.unit.home.claims import Copies, Partition, copied


@pytest.mark.parametrize(("claims", "looks"), [(1, True), (2, True), (2, False)])
def test_a_copy_is_found_although_the_topic_of_claims_was_made_again(
    copies: Copies, partition: Partition, monkeypatch: pytest.MonkeyPatch, claims: int, looks: bool
) -> None:
    """The claim of the copy had an offset that the older owner had read before, or was taken for a former one."""
    first = copies.open("first")
    older = copies.claim(first)
    for _ in range(claims - 1):
        older = copies.claim(first)
    copies.copy("second")
    partition.make_again()
    if not looks:
        monkeypatch.setattr(Claim, "_look", lambda self: None)
    copies.clock.advance(LOOK_S)
    newer = copies.claim(copies.open("second"))
    assert newer.former == [Owner.read(None)], "it waits, so the older one finds it before it begins"
    if not looks:
        for _ in range(3):
            older.check()
        return
    older.check()  # finds the other topic
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
    ended, clock = list[float](), copies.clock

    def look() -> None:
        if clock.now_s % guard.OWNER_POLL_S < clock.waits[-1] and not ended:
            with suppress(HomeError):
                older.check()
                return
            ended.append(clock.now_s)

    if not waits:
        monkeypatch.setattr(module, "FENCED_S", 0.0)
    newer = copies.claim(copies.open("second"))
    assert newer.former == [older._mine]
    clock.advance(0.01)  # the claim itself took some time
    clock.meanwhile = look
    newer.await_former()
    assert bool(ended) is waits


@pytest.mark.parametrize("knows", [True, False])
def test_a_late_claim_of_a_former_owner_does_not_end_its_successor(
    copies: Copies, partition: Partition, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    """The former owner stood still on another machine, on the way to its claim. They share the store.

    Before, the successor took itself for the older copy. It ended, and marked the home, so nothing could start again.
    """
    late: list[bytes] = []

    def append(connection: object, topic: str, value: bytes) -> int:
        late.append(value)
        raise LogError("BROKER_AWAY", "it stands still.")

    with monkeypatch.context() as elsewhere, open_home(copies.path("first"), "copied") as former:
        elsewhere.setattr(module.processes, "machine", lambda: "another")
        elsewhere.setattr(module, "_append", append)
        with pytest.raises(LogError):
            copies.claim(former)
    if not knows:
        monkeypatch.setattr(Claim, "_record_token", lambda self: frozenset())
    home = copies.open("first")
    claim = copies.claim(home)
    partition.append(late[0])
    if not knows:
        copied(claim)
        return
    claim.check()
    assert not (home.path / MARK).exists()
    partition.claimed_by(replace(Owner.of(home), machine="another", home="/a/copy"), home)
    copied(claim)


def test_only_the_newest_tokens_are_kept(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOKENS", 3)
    home = copies.open("first")
    claims = [copies.claim(home) for _ in range(10)]
    assert claims[-1]._tokens >= {each._mine.token for each in claims[-3:]}
    assert len(claims[-1]._tokens) <= 6
