"""The states that `falkirk rollback --to` can name, and the tables of history and rollback, without an application."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from falkirk.cli import main
from falkirk.errors import FalkirkError
from falkirk.recovery.protocol.consistent_cuts import ConsistentCut
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.user_tools.commands import rollback as command
from falkirk.user_tools.commands.history.application import PastCut, Preview, RollbackMove
from falkirk.user_tools.commands.history.targets import RollbackTarget, rollback_target
from tests.clock import MovedClock
from tests.unit.protocol.test_rollback_example import upto

NOON_S = datetime(2026, 11, 24, 12).timestamp()


def checkpoint(number: int, made_at_s: float) -> Checkpoint:
    made = None if number < 0 else made_at_s
    return Checkpoint(number=number, read=upto("in", number + 1), sent=upto("out", number + 1), made_at_s=made)


def cut(at_s: float, first: tuple[int, float] | None = None, **numbers: int) -> ConsistentCut:
    number, since_s = first or (sum(numbers.values()) + len(numbers), at_s)
    checkpoints = {name: checkpoint(n, at_s) for name, n in numbers.items()}
    return ConsistentCut(checkpoints=checkpoints, at_s=at_s, first_number=number, first_at_s=since_s)


NEWEST = cut(NOON_S + 0.4, first=(8, NOON_S - 20), sales=5, audit=3)
#: Newest first. The newest one equals those since number 8.
CUTS = (NEWEST, cut(NOON_S - 60, sales=2, audit=3), cut(NOON_S - 3600, sales=0, audit=0))
START = cut(-math.inf, sales=-1, audit=-1)


class Visit:
    """The part of a visit that the commands use."""

    def __init__(self, cuts: tuple[ConsistentCut, ...] = CUTS, units: tuple[str, ...] = ("sales", "audit")) -> None:
        self.found, self.previewed, self.went = cuts, dict[str, int](), dict[str, int]()
        #: The checkpoint 2 of sales, and later another one with this number.
        self.newest_two = [checkpoint(2, NOON_S)]
        self.place = SimpleNamespace(clock=MovedClock(NOON_S + 30))
        self.shape = SimpleNamespace(layout=SimpleNamespace(stages=dict.fromkeys(units)))

    def unchanged(self, read: Callable[[], object]) -> object:
        return read()

    def cuts(self) -> tuple[ConsistentCut, ...]:
        return self.found

    def past_cuts(self) -> tuple[PastCut, ...]:
        return tuple(PastCut(cut=c, again=1000 * i, outside={"out": i} if i else {}) for i, c in enumerate(self.found))

    def asked(self, text: str) -> dict[str, int]:
        name, _, number = text.partition("@")
        return {name: int(number)}

    def checkpoints(self) -> dict[str, tuple[Checkpoint, ...]]:
        return {"sales": (self.newest_two[-1],), "audit": (checkpoint(0, 0.0),)}

    def roll_back(self, asked: Mapping[str, int], *, force: bool) -> None:
        self.went = dict(asked)

    def preview(self, asked: Mapping[str, int]) -> Preview:
        self.previewed = dict(asked)
        move = RollbackMove(
            region="sales", newest=checkpoint(5, 0), to=checkpoint(2, NOON_S), again=7, taken_back=3, why="asked for"
        )
        return Preview(moves=(move,), stays=(), outside={})


def at(text: str, visit: Visit | None = None) -> RollbackTarget:
    return rollback_target(cast(Any, visit or Visit()), text, NOON_S + 30)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10", 10), ("8", 10), ("9", 10), ("7", 7), (" 2 ", 2),
        ("2026-11-24 12:00:00", 10),  # shown so, and made within this second
        ("2026-11-24T12:00:00.3", 10), ("2026-11-24 11:59:39", 7), ("2026-11-24 11:59", 7), ("2026-11-24 11:30", 2),
        ("2027-01-01", 10), ("1 minute ago", 7), ("90 s ago", 7), ("50 s ago", 10), ("59 minutes AGO", 2),
    ],
)  # fmt: skip
def test_a_time_or_a_number_names_a_cut(text: str, number: int) -> None:
    target = at(text)
    assert target.cut is not None
    assert target.cut.number == number
    assert target.asked == target.cut.asked


def test_a_time_with_a_zone_is_of_that_zone() -> None:
    utc = datetime.fromtimestamp(NOON_S - 60).astimezone().isoformat()
    assert at(utc).cut is CUTS[1]


def test_a_point_names_no_cut() -> None:
    assert at("sales@2") == RollbackTarget(asked={"sales": 2}, cut=None)


def test_before_everything_was_the_start_if_it_is_kept() -> None:
    assert at("2000-01-01", Visit((*CUTS, START))).cut is START
    assert at("0", Visit((*CUTS, START))).cut is START


@pytest.mark.parametrize(
    ("text", "condition", "names"),
    [
        ("2026-11-24 10:00", "CUT_TOO_OLD", "The oldest is 2 of 2026-11-24 11:00:00"),
        ("2 hours ago", "CUT_TOO_OLD", "The oldest is 2 of 2026-11-24 11:00:00"),
        ("5", "CUT_UNKNOWN", "from 2 to 10"),
        ("9" * 5000, "CUT_UNKNOWN", "from 2 to 10"),
        ("yesterday", "CHECKPOINT_INVALID", "10 minutes ago.*number of a cut.*PROCESSOR@CHECKPOINT"),
        ("10 minutes", "CHECKPOINT_INVALID", "10 minutes ago"),
        ("many minutes ago", "CHECKPOINT_INVALID", "10 minutes ago"),
        ("0 s ago", "CHECKPOINT_INVALID", "10 minutes ago"),
        ("-1", "CHECKPOINT_INVALID", "10 minutes ago"),
        ("٣", "CHECKPOINT_INVALID", "10 minutes ago"),
        ("", "CHECKPOINT_INVALID", "10 minutes ago"),
        ("2026-13-01", "CHECKPOINT_INVALID", "10 minutes ago"),
    ],
)
def test_another_text_is_refused(text: str, condition: str, names: str) -> None:
    with pytest.raises(FalkirkError) as refused:
        at(text)
    assert refused.value.condition == condition
    assert re.search(names, str(refused.value), re.DOTALL)


@pytest.mark.parametrize(("text", "condition"), [("5", "CUT_UNKNOWN"), ("1 s ago", "CUT_TOO_OLD")])
def test_without_any_cut_a_backup_is_advised(text: str, condition: str) -> None:
    with pytest.raises(FalkirkError, match="backup") as refused:
        at(text, Visit(()))
    assert refused.value.condition == condition


def run(monkeypatch: pytest.MonkeyPatch, visit: Visit, *words: str) -> Result:
    @contextmanager
    def offline(*of: Any) -> Iterator[Any]:
        store = SimpleNamespace(fail_taken=lambda *_, **__: None, unseen_request=lambda *_: None)
        yield visit, SimpleNamespace(take_charge=lambda: None, store=store), False

    monkeypatch.setattr(command, "offline", offline)
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, [words[0], str(Path("shop.py")), *words[1:]])


def test_history_shows_cuts_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {**CUTS[1].checkpoints, "audit": NEWEST.checkpoints["audit"]}  # audit made no point in between
    middle = ConsistentCut(checkpoints=shared, at_s=NOON_S - 60, first_number=7, first_at_s=NOON_S - 60)
    result = run(monkeypatch, Visit((NEWEST, middle, CUTS[2], START)), "history")
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    assert [[row[0], *row[2:]] for row in rows] == [
        ["10", "30 s", "5", "3", "0", "0"],
        ["7", "90 s", "2", "= 3", "1", "1,000"],
        ["2", "60 min", "0", "0", "2", "2,000"],
        ["0", "", "start", "start", "3", "3,000"],
    ]
    assert rows[0][1].startswith("2026-11-24 11:59:40 to 12:00:00 ")
    assert rows[3][1] == "at the start"


def test_history_of_many_regions_names_those_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    units = tuple(f"r{i}" for i in range(9))
    newest = cut(NOON_S, **dict.fromkeys(units, 4))
    older = ConsistentCut(
        checkpoints={**newest.checkpoints, "r3": checkpoint(2, 0)},
        at_s=NOON_S - 9,
        first_number=9,
        first_at_s=NOON_S - 9,
    )
    result = run(monkeypatch, Visit((newest, older), units), "history")
    assert "r0@4, r1@4" in result.stdout
    assert "r3@2, 8 unchanged" in result.stdout


def test_history_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    newest, older, _ = json.loads(run(monkeypatch, Visit(), "history", "--json").stdout)
    assert newest == {
        "cut": 10, "since_cut": 8, "made_at_s": NOON_S + 0.4, "since_s": NOON_S - 20,
        "checkpoints": {"sales": 5, "audit": 3}, "input_read_again": 0, "outside": {},
    }  # fmt: skip
    assert older["outside"] == {"out": 1}


def test_the_preview_says_which_cut_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    visit = Visit()
    result = run(monkeypatch, visit, "rollback", "--to", "2026-11-24 11:59:30", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "Back to cut 7 of 2026-11-24 11:59:00" in result.stdout
    assert visit.previewed == {"sales": 2, "audit": 3}
    told = json.loads(run(monkeypatch, visit, "rollback", "--to", "7", "--dry-run", "--json").stdout)
    assert (told["cut"], told["cut_made_at_s"]) == (7, NOON_S - 60)
    assert [(m["region"], m["from"], m["to"], m["results_taken_back"]) for m in told["moves"]] == [("sales", 5, 2, 3)]
    told = json.loads(run(monkeypatch, visit, "rollback", "--to", "sales@2", "--dry-run", "--json").stdout)
    assert told["cut"] is None
    refused = run(monkeypatch, visit, "rollback", "--to", "last week")
    assert (refused.exit_code, "CHECKPOINT_INVALID" in refused.output) == (1, True)


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_checkpoint_that_was_replaced_after_the_preview_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool
) -> None:
    """The application has rolled back, and made another checkpoint with the number, while the user read the preview."""
    visit = Visit()

    def confirm(*arguments: object, **options: object) -> None:
        if meanwhile:
            visit.newest_two.append(checkpoint(2, NOON_S + 20))

    monkeypatch.setattr(command.click, "confirm", confirm)
    result = run(monkeypatch, visit, "rollback", "--to", "sales@2")
    assert visit.went == ({} if meanwhile else {"sales": 2}), result.output
    assert ("PREVIEW_OUTDATED" in result.output) == meanwhile
