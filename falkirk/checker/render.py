"""Shows a verdict: as a table in plain words for people, as JSON for programs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from falkirk.checker.run import RowPlace, Values
from falkirk.checker.verdict import Anomaly, Consistency, Guarantee, PlaceRead, RuleVerdict, Verdict

MEANING = {
    Guarantee.EXACTLY_ONCE: "the outputs are exactly those that the inputs give",
    Guarantee.REPEATED_DELIVERY: "the outputs are right after repeated outputs are removed",
    Guarantee.AT_MOST_ONCE: "the outputs are those of some of the inputs, each with all its derivatives",
    Guarantee.AT_LEAST_ONCE: "the outputs are those of the inputs with some applied again",
    Guarantee.BROKEN: "no guarantee explains these outputs",
    Guarantee.UNDECIDED: "an output without an explanation does not pass",
}

_ROWS = (
    ("inputs", "inputs", False),
    ("expected_outputs", "outputs due", False),
    ("observed_outputs", "outputs found", False),
    ("keys", "keys", False),
    ("duplicates", "duplicate", True),
    ("repeated_inputs", "repeated input (applied again)", True),
    ("lost", "lost (input without its output)", True),
    ("unexplained", "unexplained (no input gives this output)", True),
    ("forgotten", "forgotten (later outputs contradict it)", True),
    ("broken_sequences", "broken sequence (number of keys)", True),
    ("partial", "partial (only some outputs of an input)", True),
)


def render(verdict: Verdict, *, anomalies_shown: int = 10, undecided_shown: int = 5) -> RenderableType:
    """Return the verdict for a terminal: the guarantee, the counts, and the first anomalies with their explanations."""
    good = verdict.guarantee is Guarantee.EXACTLY_ONCE
    head = Text.assemble(
        (str(verdict.guarantee), "bold green" if good else "bold red"), f": {MEANING[verdict.guarantee]}"
    )
    counts = Table(box=None, show_header=False, pad_edge=False)
    counts.add_column()
    counts.add_column(justify="right")
    numbers = verdict.counts.as_dict()
    for name, words, is_anomaly in _ROWS:
        counts.add_row(words, f"{numbers[name]:,}", style="red" if is_anomaly and numbers[name] else None)
    parts: list[RenderableType] = [head, _consistency(verdict.consistency), *render_read(verdict.read), counts]
    if verdict.anomalies:
        parts.append(_anomalies(verdict.anomalies[:anomalies_shown]))
    total = sum(numbers[name] for name, _, is_anomaly in _ROWS if is_anomaly)
    hidden = total - min(len(verdict.anomalies), anomalies_shown)
    if hidden:
        parts.append(Text(f"and {hidden:,} more"))
    for each in verdict.undecided[:undecided_shown]:
        whose = "" if each.key is None else f"{_key_text(each.key)}: "
        parts.append(Text(f"undecided: {whose}{each.reason}", style="yellow"))
    if verdict.counts.undecided > undecided_shown:
        parts.append(Text(f"and {verdict.counts.undecided - undecided_shown:,} more undecided", style="yellow"))
    return Group(*parts, *([render_rules(verdict.rules, anomalies_shown=anomalies_shown)] if verdict.rules else []))


def render_read(read: Sequence[PlaceRead]) -> list[Text]:
    """Return the places that were read, and the names that were passed over, for a terminal."""
    lines = []
    for each in read:
        parts = "partitions" if each.where.startswith("kafka:") else "files"
        logs = "" if each.logs == 1 else f" in {each.logs:,} {parts}"
        rows = "1 row" if each.rows == 1 else f"{each.rows:,} rows"
        lines.append(Text(f"read {each.where}: {rows}{logs}"))
        if each.passed_over_count:
            more = each.passed_over_count - len(each.passed_over)
            names = ", ".join(each.passed_over) + (f" and {more:,} more" if more else "")
            lines.append(Text(f"  not read: {names}", style="yellow"))
        lines.extend(Text(f"  {note}", style="yellow") for note in each.notes)
    return lines


def render_rules(rules: Sequence[RuleVerdict], *, anomalies_shown: int = 10) -> RenderableType:
    """Return the verdicts of rules for a terminal."""
    parts: list[RenderableType] = []
    for rule in rules:
        how = ("is broken", "bold red") if rule.broken else ("holds", "bold green")
        if not rule.broken and not rule.holds:
            how = ("was not seen to hold: no output has its column", "bold red")
        times = f" {rule.broken:,} times" if rule.broken > 1 else ""
        parts.append(Text.assemble(f"rule {rule.rule} ", how, times))
        if rule.anomalies:
            parts.append(_anomalies(rule.anomalies[:anomalies_shown]))
    return Group(*parts)


def _consistency(found: Consistency) -> Text:
    if found.holds:
        return Text.assemble(
            ("consistent", "bold green"), ": each output agrees with the inputs and with the outputs before it"
        )
    if found.first is None:
        return Text("consistency undecided", style="yellow")
    more = f" (and of {found.keys - 1:,} more keys)" if found.keys > 1 else ""
    return Text.assemble(("inconsistent", "bold red"), f": {found.first.explanation}{more}")


def _anomalies(anomalies: tuple[Anomaly, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("anomaly", "key", "explanation", "due", "found"):
        table.add_column(name, overflow="fold")
    for each in anomalies:
        cells = (
            str(each.kind),
            _key_text(each.key),
            each.explanation,
            fields_shown(each.expected),
            fields_shown(each.found),
        )
        table.add_row(*map(Text, cells))
    return table


def _key_text(key: Hashable) -> str:
    """Return the values of a key's columns."""
    values = key if isinstance(key, tuple) else () if key is None else (key,)
    return ", ".join(map(str, values))


def fields_shown(values: Values | None) -> str:
    """Return a row on one line; an empty text for None."""
    return "" if values is None else ", ".join(f"{name}={value}" for name, value in values.items())


def to_json(verdict: Verdict) -> dict[str, object]:
    """Return the verdict in values for ``json.dumps``, with stable names."""
    return {
        "guarantee": str(verdict.guarantee),
        "holds": {str(guarantee): holds for guarantee, holds in verdict.holds.items()},
        "consistency": {
            "holds": verdict.consistency.holds,
            "inconsistent_keys": verdict.consistency.keys,
            "first": None if verdict.consistency.first is None else _anomaly(verdict.consistency.first),
        },
        "counts": verdict.counts.as_dict(),
        "anomalies": [_anomaly(each) for each in verdict.anomalies],
        "undecided": [{"key": plain_value(each.key), "reason": each.reason} for each in verdict.undecided],
        "rules": rules_to_json(verdict.rules),
        "read": read_to_json(verdict.read),
    }


def read_to_json(read: Sequence[PlaceRead]) -> list[dict[str, object]]:
    """Return the places that were read, in values for ``json.dumps``."""
    return [asdict(each) for each in read]


def rules_to_json(rules: Sequence[RuleVerdict]) -> list[object]:
    """Return the verdicts of rules in values for ``json.dumps``."""
    return [
        {
            "rule": rule.rule,
            "holds": rule.holds,
            "broken": rule.broken,
            "outputs": rule.outputs,
            "anomalies": [_anomaly(each) for each in rule.anomalies],
        }
        for rule in rules
    ]


def _anomaly(each: Anomaly) -> dict[str, object]:
    return {
        "kind": str(each.kind),
        "key": plain_value(each.key),
        "inputs": [_place(place) for place in each.inputs],
        "outputs": [_place(place) for place in each.outputs],
        "expected": plain_value(each.expected),
        "found": plain_value(each.found),
        "explanation": each.explanation,
    }


def _place(place: RowPlace) -> dict[str, object]:
    return place._asdict()


def plain_value(value: Hashable | Values | None) -> object:
    """Return a value, or a row, in values for ``json.dumps``."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain_value(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(element) for element in value]
    return float(value) if isinstance(value, Decimal) else str(value)
