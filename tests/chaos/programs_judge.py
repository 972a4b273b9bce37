"""The judge of random programs: the published results and dead letters are those of the models, each once."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from falkirk.checker import TopicRecord
from tests.chaos.program_models import Letter, Outcome, Row
from tests.chaos.programs import Processor

#: A result, as it is compared: id, time in microseconds, number.
Value = tuple[str, int | None, int]
#: The reasons of dead letters of records that do not fit, of which the models know the kinds alone.
KINDS = {"column id is null": "unfit", "column at is null": "no time", "late": "late"}


def value_of(row: Mapping[str, Any]) -> Value:
    """Return a published result, as it is compared."""
    at = row.get("at")
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    if time is not None and time.tzinfo is None:  # in the test kit
        time = time.replace(tzinfo=UTC)
    return row["id"], None if time is None else round(time.timestamp() * 1e6), row["n"]


def expected_value(row: Row) -> Value:
    """Return an expected result, as it is compared."""
    return row.id, None if row.at is None else round(row.at.timestamp() * 1e6), row.n


def letter_of(row: Mapping[str, Any]) -> Letter:
    """Return a published dead letter, as it is compared."""
    kind = KINDS.get(row["reason"], "failed" if row.get("traceback") else row["reason"])
    return kind, (row.get("topic", ""), row.get("partition", -1), row.get("offset", -1))


def letters_of(records: Iterable[TopicRecord], names: Mapping[str, str]) -> Counter[tuple[str, Letter]]:
    """Return dead letters, by the processor whose region could not use the record. Args: names: of topics."""
    found = Counter[tuple[str, Letter]]()
    for row in (json.loads(each.value or b"{}") for each in records):
        kind, (topic, partition, offset) = letter_of(row)
        found[row["region"].split("-")[0], (kind, (names.get(topic, ""), partition, offset))] += 1
    return found


def faults_of_letters(expected: Counter[Any], known: Counter[Any]) -> list[str]:
    """Return what is wrong with dead letters, by processor. Those of records of an internal log have a place there.

    Args: expected, known: as of `letters_of`.
    """
    inside = Counter({each: number for each, number in known.items() if not each[1][1][0]})
    placed = known - inside
    more, missing = placed - expected, expected - placed
    faults = [f"dead letters with a place in a source that are too many: {_few(more)}"] if more else []
    due, found = _by_kind(missing), _by_kind(inside)
    if due != found:
        again = Counter({each: number for each, number in inside.items() if number > 1})
        faults.append(
            f"dead letters without such a place: {dict(found)} instead of {dict(due)}; due: {_few(missing)}; found: "
            f"{_few(inside)}; of them more than once: {_few(again)}"
        )
    return faults


def _by_kind(letters: Counter[Any]) -> Counter[tuple[str, str]]:
    return Counter((name, kind) for name, (kind, _) in letters.elements())


def faults_of(each: Processor, outcome: Outcome, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is wrong with the results of a processor, in the order of each partition."""
    if each.check == "counted":
        return _faults_of_counts(outcome.rows, rows)
    found, due = Counter(map(value_of, rows)), Counter(map(expected_value, outcome.rows))
    faults = [f"too many: {_few(found - due)}"] if found - due else []
    faults += [f"missing: {_few(due - found)}"] if due - found else []
    if not faults and each.check == "ordered":
        ordered, right = _by_id(map(value_of, rows)), _by_id(map(expected_value, outcome.rows))
        wrong = [key for key in right if ordered[key] != right[key]]
        faults += [f"another order: {wrong[:5]}: {ordered[wrong[0]][:9]} is not {right[wrong[0]][:9]}"] if wrong else []
    return faults


def _few(values: Counter[Any]) -> str:
    return f"{values.total()}: {sorted(values.elements(), key=str)[:8]}"


def _by_id(values: Iterable[Value]) -> dict[str, list[Value]]:
    found = defaultdict(list)
    for value in values:
        found[value[0]].append(value)
    return found


def _faults_of_counts(due: Sequence[Row], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is wrong with counts by id: each row is counted once, and the totals are those of the numbers."""
    wanted, found, faults = defaultdict[str, Counter[int]](Counter), defaultdict[str, list[Any]](list), []
    for each in due:
        wanted[each.id][each.n] += 1
    for row in rows:
        found[row["id"]].append((row["version"], row["n"], row["total"]))
    for key in sorted(wanted.keys() | found.keys()):
        total = 0
        for number, (version, n, so_far) in enumerate(found[key], start=1):
            total += n
            if (version, so_far) != (number, total):
                faults.append(f"{key}: result {number} is version {version} with {so_far} and not {total}")
                break
        numbers = Counter(n for _, n, _ in found[key])
        if numbers != wanted[key]:
            faults.append(f"{key}: too many {_few(numbers - wanted[key])}, missing {_few(wanted[key] - numbers)}")
    return faults
