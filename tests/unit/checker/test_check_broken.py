"""Runs that are broken on purpose, each in one way. The checker names kind and place: in memory, divided, by the
command."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from falkirk.checker import (
    AggregateModel,
    Count,
    InputRow,
    Kind,
    Latest,
    OutputRow,
    RowPlace,
    Space,
    Sum,
    check_keyed,
    to_json,
)
from falkirk.cli import main
from tests.check_runs import apply, placed

MODEL = AggregateModel(["user"], {"version": Count(), "total": Sum("amount"), "page": Latest("page")})
#: The order in which the rows of the broken key were applied: page and source partition.
ADA = (("a0", 0), ("b0", 1), ("a1", 0), ("b1", 1), ("a2", 0), ("a3", 0))


def inputs() -> list[InputRow]:
    """Return rows of two partitions, in the order in which they were applied. Every tenth is Ada's."""
    offsets, rows = [0, 0], []
    for number in range(60):
        page, partition = ADA[number // 10] if number % 10 == 5 else (f"p{number}", number % 2)
        user = "ada" if number % 10 == 5 else f"user{number % 7}"
        place = RowPlace("in", partition, offsets[partition])
        rows.append(InputRow(key=user, place=place, row={"user": user, "amount": number, "page": page}))
        offsets[partition] += 1
    return rows


INPUTS = inputs()
CLEAN = apply(MODEL, INPUTS)
MINE = [index for index, output in enumerate(CLEAN) if output.key == "ada"]


def source(page: str) -> RowPlace:
    """Return the place of Ada's input with this page."""
    return next(row.place for row in INPUTS if row.row["page"] == page)


def without(index: int) -> list[OutputRow]:
    return [*CLEAN[:index], *CLEAN[index + 1 :]]


def with_values(index: int, **values: object) -> OutputRow:
    return replace(CLEAN[index], values={**CLEAN[index].values, **values})


def lost_output() -> list[OutputRow]:
    return without(MINE[3])


def lost_input() -> list[OutputRow]:
    return apply(MODEL, [row for row in INPUTS if row.row["page"] != "b1"])


def doubled_output() -> list[OutputRow]:
    return [*CLEAN[: MINE[2] + 2], CLEAN[MINE[2]], *CLEAN[MINE[2] + 2 :]]


def doubled_input() -> list[OutputRow]:
    again = next(row for row in INPUTS if row.row["page"] == "a1")
    return apply(MODEL, [*INPUTS[: MINE[3]], again, *INPUTS[MINE[3] :]])


def reordered() -> list[OutputRow]:
    found = list(CLEAN)
    found[MINE[2]], found[MINE[3]] = found[MINE[3]], found[MINE[2]]
    return found


def split_in_two() -> list[OutputRow]:
    """One change gives two outputs: first with half of the amount, then with all of it."""
    before, whole = CLEAN[MINE[1]].values["total"], CLEAN[MINE[2]].values["total"]
    assert isinstance(before, int)
    assert isinstance(whole, int)
    half = with_values(MINE[2], total=(before + whole) // 2)
    return [*CLEAN[: MINE[2]], half, *CLEAN[MINE[2] :]]


def forgotten_incarnation() -> list[OutputRow]:
    """An incarnation took b0 second and released the result. Its state was rolled back, and the next one took a1
    second."""
    order = list(INPUTS)
    order[MINE[1]], order[MINE[2]] = INPUTS[MINE[2]], INPUTS[MINE[1]]
    return [*CLEAN[: MINE[1] + 1], *apply(MODEL, order)[MINE[1] :]]


def wrong_content() -> list[OutputRow]:
    return [*CLEAN[: MINE[4]], with_values(MINE[4], page="z"), *CLEAN[MINE[4] + 1 :]]


@dataclass(frozen=True)
class Told:
    """The expected findings: kinds with the inputs and the offsets of the outputs; the first inconsistent output."""

    guarantee: str
    anomalies: dict[Kind, tuple[list[RowPlace], list[int]]]
    inconsistent: int | None = None


CASES: dict[str, tuple[Callable[[], list[OutputRow]], Told]] = {
    "clean": (lambda: CLEAN, Told("exactly-once", {})),
    "lost output": (
        lost_output,
        Told(
            "broken",
            {Kind.LOST: ([source("b1")], []), Kind.BROKEN_SEQUENCE: ([source("b1")], [MINE[2], MINE[4] - 1])},
            MINE[4] - 1,
        ),
    ),
    # Each output is possible: b1 may still have been in flight. Nevertheless the run is at-most-once.
    "lost input": (lost_input, Told("at-most-once", {Kind.LOST: ([source("b1")], [])})),
    "doubled output": (
        doubled_output,
        Told(
            "repeated delivery with exact state",
            {Kind.DUPLICATE: ([], [MINE[2], MINE[2] + 2])},
            MINE[2] + 2,
        ),
    ),
    "doubled input": (
        doubled_input,
        Told("at-least-once", {Kind.REPEATED_INPUT: ([source("a1")], [MINE[3]])}, MINE[3]),
    ),
    "reordered": (
        reordered,
        Told("broken", {Kind.BROKEN_SEQUENCE: ([source("a1")], [MINE[2], MINE[3]])}, MINE[2]),
    ),
    "split in two": (
        split_in_two,
        Told("broken", {Kind.UNEXPLAINED: ([source("a1")], [MINE[2]])}, MINE[2]),
    ),
    "forgotten incarnation": (
        forgotten_incarnation,
        Told("broken", {Kind.FORGOTTEN: ([source("b0")], [MINE[1]])}, MINE[1] + 1),
    ),
    "wrong content": (
        wrong_content,
        Told(
            "broken",
            {
                Kind.UNEXPLAINED: ([source("a2")], [MINE[4]]),
                Kind.LOST: ([source("a2")], []),
                Kind.BROKEN_SEQUENCE: ([source("a2")], [MINE[4], MINE[5]]),
            },
            MINE[4],
        ),
    ),
}


def in_memory(found: list[OutputRow], folder: Path) -> Any:
    return to_json(check_keyed(INPUTS, found, MODEL))


def divided(found: list[OutputRow], folder: Path) -> Any:
    return to_json(check_keyed(INPUTS, found, MODEL, space=Space(memory_bytes=1 << 12, parts=3, linked_rows=1000)))


def by_command(found: list[OutputRow], folder: Path) -> Any:
    for partition in (0, 1):
        rows = sorted((row for row in INPUTS if row.place.partition == partition), key=lambda row: row.place)
        write(folder / "in" / f"{partition}.jsonl", (row.row for row in rows))
    write(folder / "out.jsonl", (output.values for output in found))
    arguments = [
        "verify",
        "run",
        "--input",
        f"{folder}/in",
        "--output",
        f"{folder}/out.jsonl",
        "--key",
        "user",
        "--json",
    ]
    ran = CliRunner().invoke(main, [*arguments, "--model", "version=count, total=sum(amount), page=latest(page)"])
    verdict = json.loads(ran.output)
    assert ran.exit_code == (0 if verdict["guarantee"] == "exactly-once" else 1)
    return verdict


def write(path: Path, rows: Iterator[Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def where(place: dict[str, Any]) -> tuple[int, int]:
    """Return partition and offset of an input. In the command's run, a partition is a file."""
    name = Path(place["topic"]).stem
    return (int(name) if name.isdigit() else place["partition"]), place["offset"]


@pytest.mark.parametrize("how", [in_memory, divided, by_command])
@pytest.mark.parametrize("case", CASES)
def test_what_was_broken_is_told_with_its_place(
    case: str, how: Callable[[list[OutputRow], Path], Any], tmp_path: Path
) -> None:
    breaking, told = CASES[case]
    verdict = how(placed(breaking()), tmp_path)
    assert verdict["guarantee"] == told.guarantee
    assert {each["key"] for each in verdict["anomalies"]} <= {"ada"}
    found = {
        each["kind"]: ([where(p) for p in each["inputs"]], [p["offset"] for p in each["outputs"]])
        for each in verdict["anomalies"]
    }
    assert found == {
        str(kind): ([(p.partition, p.offset) for p in places], offsets)
        for kind, (places, offsets) in told.anomalies.items()
    }
    assert len(verdict["anomalies"]) == len(found)
    first = verdict["consistency"]["first"]
    assert (first and first["outputs"][-1]["offset"]) == told.inconsistent
    assert verdict["consistency"]["holds"] is (told.inconsistent is None)
