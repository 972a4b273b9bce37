"""Frontiers and failures: the numbers of the recorded shop, and that they agree with the protocol on random states."""

import random
from dataclasses import replace

import pytest

from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.rollback import decide_rollback
from falkirk.theory.frontier import EMPTY
from falkirk.theory.ids import EpochNumber, LogId
from falkirk.theory.projection import Cuts
from falkirk.user_tools.commands.dashboard.progress import Snapshot, failure, frontiers, sink_frontiers
from tests.simulation.elements import Element, partition_of
from tests.simulation.memory import MemoryStore
from tests.simulation.run import random_layout
from tests.simulation.world import World
from tests.unit.dashboard.recorded import large, shop

SALES = LogId("sales")


def test_results_may_be_out_before_they_are_saved_or_only_afterwards() -> None:
    found = frontiers(shop()[1])
    # Deterministic and live: computed results are published.
    assert found["orders to sales-by-item"] == {"there": 1100, "computed": 1090, "out": 1090, "saved": 1000}
    # It waits for a checkpoint: published results are saved.
    assert found["orders to vouchers"] == {"there": 1100, "computed": 1095, "out": 980, "saved": 980}
    # A batch has computed its complete epochs.
    assert found["orders to report"] == {"there": 1100, "computed": 900, "out": 900, "saved": 900}
    assert sink_frontiers(shop()[1]) == {
        "sales": {"there": 2170, "computed": 2170, "out": 2170, "saved": 1950},
        "vouchers": {"there": 2190, "computed": 2190, "out": 1960, "saved": 1960},
        "report": {"there": 2, "computed": 2, "out": 2, "saved": 2},
    }


def test_who_goes_back_if_it_died_now() -> None:
    _, look = shop()
    every = failure(look, frozenset(look.layout.stages))
    assert {g["unit"]: (g["to"], g["records"], g["void"]) for g in every["goes"]} == {
        "sales-by-item": (1, 90, 0), "sales": (1, 220, 0), "vouchers": (1, 115, 230), "report": (1, 0, 0),
    }  # fmt: skip
    assert (every["again"], every["stays"], every["repeated"]) == (425, [], [])
    one = failure(look, frozenset({"vouchers"}))
    assert ([g["unit"] for g in one["goes"]], one["stays"]) == (["vouchers"], ["sales-by-item", "sales", "report"])


def test_published_results_that_would_be_contradicted_are_named() -> None:
    _, look = shop()
    ends = look.ends["held"]  # type: ignore[index]
    lost = Snapshot(
        layout=look.layout, checkpoints=look.checkpoints, ends=look.ends, cuts=look.cuts,
        released={**look.released, "held": ends},  # type: ignore[dict-item]
    )  # fmt: skip
    assert failure(lost, frozenset({"vouchers"}))["repeated"] == ["vouchers"]


def test_results_that_are_published_again_are_named() -> None:
    """With `delivery="repeated"` no barrier drops a replay, which the protocol does not know."""
    _, look = shop()
    found = failure(replace(look, repeats=frozenset({"sales"})), frozenset({"sales"}))
    assert found["repeated"] == ["sales"]
    checkpoints = {
        **look.checkpoints,
        "sales": (*look.checkpoints["sales"][:-1], replace(look.checkpoints["sales"][-1], sent=look.ends[SALES])),
    }
    caught_up = replace(look, repeats=frozenset({"sales"}), checkpoints=checkpoints)
    assert failure(caught_up, frozenset({"sales"}))["repeated"] == []


def test_an_application_that_could_not_recover_says_so() -> None:
    _, look = shop()
    lost = Snapshot(layout=look.layout, checkpoints={**look.checkpoints, "sales": ()}, ends=look.ends, cuts=look.cuts)
    found = failure(lost, frozenset(look.layout.stages))
    assert "sales" in found["error"]
    assert found["goes"] == []


def drawn(seed: int) -> Snapshot:
    """Return a look at a random application that has worked for a while."""
    rng = random.Random(seed)
    world = World(random_layout(rng, random.Random(seed + 1)), rng, decided=0, store=MemoryStore())
    numbers: dict[str, int] = {}
    for region in world.regions.values():
        region.fence()
        region.start(-1)
    for _ in range(rng.randint(0, 30)):
        world.now_s += 1.0
        topic = rng.choice(world.layout.sources)
        key = f"{topic}.{rng.randint(0, 3)}"
        numbers[key] = numbers.get(key, -1) + 1
        partition = partition_of(key, world.layout.partitions[topic])
        log = world.logs[next(e for e in world.layout.sequences(topic) if e.partition == partition)]
        log.elements.append(Element(key=key, path=f"{key}:{numbers[key]}", digest=""))
        for region in world.regions.values():
            assert region.running is not None
            region.step(region.running)
            region.deliver(region.running, 3)
            if rng.random() < 0.3:
                region.checkpoint(region.running)
    layout: Layout = world.layout
    return Snapshot(
        layout=layout,
        checkpoints={name: region.checkpoints() for name, region in world.regions.items()},
        ends={log: world.ends(log) for log in layout.partitions},
        released=dict.fromkeys(layout.held, EMPTY),
        cuts={name: world.regions[name].cuts(EpochNumber(-1)) for name in layout.batches},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_frontiers_are_ordered_and_the_failure_is_the_protocols(seed: int) -> None:
    look = drawn(seed)
    for f in [*frontiers(look).values(), *sink_frontiers(look).values()]:
        assert 0 <= f["out"] <= f["computed"] <= f["there"]
        assert 0 <= f["saved"] <= f["there"]
    cuts = {name: Cuts.of(found) for name, found in look.cuts.items()}
    for failed in (frozenset(look.layout.stages), frozenset([*look.layout.stages][:1])):
        decision = decide_rollback(look.layout, look.checkpoints, failed=failed, outside=look.outside, cuts=cuts)
        found = failure(look, failed)
        assert {g["unit"]: g["to"] for g in found["goes"]} == dict(decision.goes)
        assert {*found["stays"]} == look.layout.stages.keys() - decision.goes.keys()
        assert all(g["void"] == 0 for g in found["goes"] if g["unit"] not in decision.settled)


def test_two_hundred_regions_take_no_long_time() -> None:
    _, look = large(200)
    assert len(failure(look, frozenset(look.layout.stages))["goes"]) == 200
    assert len(frontiers(look)) == 200
