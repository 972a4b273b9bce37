"""The lines of `falkirk run` when all processors run, and when they run again."""

from falkirk.user_tools.commands.announced import Announced


def lines(*statuses: str) -> list[str | None]:
    """Return the line at each status, given as the states of the processors a, b, …"""
    announced = Announced("shop")
    return [
        announced.line({"regions": [{"name": n, "state": s} for n, s in zip("abc", each.split(), strict=False)]})
        for each in statuses
    ]


def test_a_line_comes_when_all_run_and_when_they_run_again() -> None:
    assert lines("starting running", "running running", "running running", "waiting running", "running running") == [
        None, "shop: all processors run", None, None, "shop: all processors run again",
    ]  # fmt: skip


def test_a_new_host_that_starts_with_nothing_is_no_standstill_that_never_ends() -> None:
    assert lines("running", "", "starting", "running") == [
        "shop: all processors run", None, None, "shop: all processors run again",
    ]  # fmt: skip


def test_those_that_failed_for_good_are_named() -> None:
    assert lines("running failed", "failed failed") == ["shop: all processors but b run", None]


def test_a_processor_that_is_tried_again_runs_again() -> None:
    """Somebody has a transaction open in its output, and commits it later."""
    announced = Announced("shop")
    a = {"name": "a", "state": "running", "condition": ""}
    found = [
        announced.line({"regions": [a, {"name": "b", "state": state, "condition": condition}]})
        for state, condition in (
            ("failed", "SINK_UNSETTLED"), ("running", ""), ("failed", "SINK_UNSETTLED"), ("running", ""),
            ("failed", "INPUT_EXPIRED"),
        )
    ]  # fmt: skip
    assert found == [None, "shop: all processors run", None, "shop: all processors run again", None]
