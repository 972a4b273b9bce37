"""Show a verdict: as a table in plain words for people, as JSON for programs."""

from collections.abc import Hashable, Mapping
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from falkirk.check.run import Place, Values
from falkirk.check.verdict import Anomaly, Guarantee, Verdict

MEANING = {
    Guarantee.EXACTLY_ONCE: "every output is what the inputs give, once",
    Guarantee.REPEATED_DELIVERY: "the outputs are right once those that came again are taken away",
    Guarantee.AT_MOST_ONCE: "the outputs are those of some of the inputs, each with all that follows from it",
    Guarantee.AT_LEAST_ONCE: "the outputs are those of the inputs with some applied again",
    Guarantee.BROKEN: "no guarantee explains these outputs",
    Guarantee.UNDECIDED: "the search for an explanation was given up; what is not explained does not pass",
}

_ROWS = (
    ("inputs", "inputs", False),
    ("expected_outputs", "outputs due", False),
    ("observed_outputs", "outputs found", False),
    ("keys", "keys", False),
    ("duplicates", "duplicates", True),
    ("repeated_inputs", "inputs applied again", True),
    ("lost", "lost", True),
    ("unexplained", "unexplained", True),
    ("broken_sequences", "keys with a broken sequence", True),
    ("partial", "inputs of which only a part came out", True),
)


def render(verdict: Verdict, *, anomalies_shown: int = 10, undecided_shown: int = 5) -> RenderableType:
    """Return the verdict for a terminal: the guarantee, the counts, and the first anomalies with their
    explanations.
    """
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
    parts: list[RenderableType] = [head, counts]
    if verdict.anomalies:
        parts.append(_anomalies(verdict.anomalies[:anomalies_shown]))
    total = sum(numbers[name] for name, _, is_anomaly in _ROWS if is_anomaly)
    hidden = total - min(len(verdict.anomalies), anomalies_shown)
    if hidden:
        parts.append(Text(f"and {hidden:,} more"))
    for each in verdict.undecided[:undecided_shown]:
        parts.append(Text(f"undecided: {each.key}: {each.reason}", style="yellow"))
    if len(verdict.undecided) > undecided_shown:
        parts.append(Text(f"and {len(verdict.undecided) - undecided_shown:,} more undecided", style="yellow"))
    return Group(*parts)


def _anomalies(anomalies: tuple[Anomaly, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("anomaly", "key", "explanation", "due", "found"):
        table.add_column(name, overflow="fold")
    for each in anomalies:
        cells = (
            str(each.kind),
            "" if each.key is None else str(each.key),
            each.explanation,
            _fields(each.expected),
            _fields(each.found),
        )
        table.add_row(*map(escape, cells))
    return table


def _fields(values: Values | None) -> str:
    return "" if values is None else ", ".join(f"{name}={value}" for name, value in values.items())


def to_json(verdict: Verdict) -> dict[str, object]:
    """Return the verdict in values that ``json.dumps`` takes, with stable names."""
    return {
        "guarantee": str(verdict.guarantee),
        "holds": {str(guarantee): holds for guarantee, holds in verdict.holds.items()},
        "counts": verdict.counts.as_dict(),
        "anomalies": [
            {
                "kind": str(each.kind),
                "key": _plain(each.key),
                "inputs": [_place(place) for place in each.inputs],
                "outputs": [_place(place) for place in each.outputs],
                "expected": _plain(each.expected),
                "found": _plain(each.found),
                "explanation": each.explanation,
            }
            for each in verdict.anomalies
        ],
        "undecided": [{"key": _plain(each.key), "reason": each.reason} for each in verdict.undecided],
    }


def _place(place: Place) -> dict[str, object]:
    return place._asdict()


def _plain(value: Hashable | Values | None) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return float(value) if isinstance(value, Decimal) else str(value)
