"""Generates random runs for the checker with their expected outputs, and ways to corrupt these."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from falkirk.checker import (
    AggregateModel,
    Count,
    DistinctModel,
    InputRow,
    Latest,
    Max,
    Min,
    Model,
    OutputRow,
    RowPlace,
    StatelessModel,
    Sum,
)

INDEX = AggregateModel(["k"], {"version": Count(), "page": Latest("page")})
SUMMARY = AggregateModel(["k"], {"n": Count(), "sum": Sum("x"), "low": Min("x"), "high": Max("x")})
MODELS: dict[str, Model[Any]] = {
    "index": INDEX,
    "summary": SUMMARY,
    "count": AggregateModel(["k"], {"n": Count("x")}),
    "lowest": AggregateModel(["k"], {"low": Min("x")}),
    "stateless": StatelessModel(),
    "distinct": DistinctModel(),
}


@dataclass(frozen=True)
class Run:
    """A generated run: rows of several partitions, applied in `order`, with the outputs of that order."""

    inputs: list[InputRow]
    order: list[InputRow]
    outputs: list[OutputRow]


def placed(outputs: list[OutputRow]) -> list[OutputRow]:
    return [replace(output, place=RowPlace("out", 0, offset)) for offset, output in enumerate(outputs)]


def apply(model: Model[Any], order: list[InputRow]) -> list[OutputRow]:
    """Return the outputs that the rows give when they are applied in this order."""
    states: dict[object, object] = {}
    outputs = []
    for row in order:
        state, output = model.step(states.get(row.key, model.initial()), row.row)
        states[row.key] = state
        if output is not None:
            outputs.append(OutputRow(key=row.key, place=RowPlace("out", 0, 0), values=output))
    return placed(outputs)


@st.composite
def runs(
    draw: st.DrawFn,
    model: Model[Any],
    *,
    partitions_max: int = 3,
    records_min: int = 0,
    records_max: int = 5,
    keys: str = "ab",
) -> Run:
    """Return records with one to three derivatives each. Whole records are applied in an order that respects each
    partition."""
    sizes = draw(st.lists(st.integers(0, records_max), min_size=1, max_size=partitions_max))
    sizes[0] = max(sizes[0], records_min)
    records: list[list[InputRow]] = []
    for partition, size in enumerate(sizes):
        for offset in range(size):
            derivatives = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3))
            record = []
            for sub_index, key in enumerate(derivatives):
                x = draw(st.one_of(st.none(), st.integers(-3, 3)))
                row = {"k": key, "x": x, "page": f"{partition}-{offset}-{sub_index}"}
                record.append(InputRow(key=key, place=RowPlace("in", partition, offset, sub_index), row=row))
            records.append(record)
    turns = draw(st.permutations([partition for partition, size in enumerate(sizes) for _ in range(size)]))
    waiting = {
        partition: [each for each in records if each[0].place.partition == partition] for partition in set(turns)
    }
    order = [row for partition in turns for row in waiting[partition].pop(0)]
    return Run([row for record in records for row in record], order, apply(model, order))


def duplicate_at(data: st.DataObject, outputs: list[OutputRow]) -> list[OutputRow]:
    index = data.draw(st.integers(0, len(outputs) - 1))
    again = data.draw(st.integers(index + 1, len(outputs)))
    return [*outputs[:again], outputs[index], *outputs[again:]]


def lose_one(data: st.DataObject, outputs: list[OutputRow]) -> list[OutputRow]:
    index = data.draw(st.integers(0, len(outputs) - 1))
    return [*outputs[:index], *outputs[index + 1 :]]


def add_stray(data: st.DataObject, outputs: list[OutputRow]) -> list[OutputRow]:
    index = data.draw(st.integers(0, len(outputs)))
    key = data.draw(st.sampled_from("abz"))
    return [
        *outputs[:index],
        OutputRow(key=key, place=RowPlace("out", 0, 0), values={"k": key, "page": "?"}),
        *outputs[index:],
    ]


def change_content(data: st.DataObject, outputs: list[OutputRow]) -> list[OutputRow]:
    index = data.draw(st.integers(0, len(outputs) - 1))
    changed = replace(outputs[index], values={**outputs[index].values, "page": "?"})
    return [*outputs[:index], changed, *outputs[index + 1 :]]


Corruption = Callable[[st.DataObject, list[OutputRow]], list[OutputRow]]
CORRUPTIONS: dict[str, Corruption] = {
    "duplicate": duplicate_at,
    "lost": lose_one,
    "stray": add_stray,
    "changed": change_content,
}
