"""Shows the findings of an audit: as a table for the terminal, and as plain values."""

from collections.abc import Iterable
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from falkirk.user_tools.determinism_check.findings import AuditFinding, AuditOutcome


def findings_table(found: Iterable[AuditFinding]) -> RenderableType:
    """Return the findings for the terminal: a table, and both results of each difference."""
    table = Table(title="two runs of each on the same rows", title_justify="left")
    for heading in ("what", "rows", "outcome"):
        table.add_column(heading)
    differing = []
    for finding in found:
        outcome = f"{finding.outcome}: {finding.reason}" if finding.reason else str(finding.outcome)
        if finding.outcome is AuditOutcome.DIFFERS:
            inferred = "you declared it" if finding.by_assertion else "Falkirk inferred that it is"
            outcome = f"DIFFERS, although {inferred} deterministic"
            differing.append(finding)
        table.add_row(finding.name, f"{finding.rows:,}", outcome)
    texts = [
        Text(
            "\n".join([f"{f.name}:", *(f"  first  {row}" for row in f.first), *(f"  again  {row}" for row in f.again)])
        )
        for f in differing
    ]
    return Group(table, *texts)


def finding_values(finding: AuditFinding) -> dict[str, object]:
    """Return a finding as plain values."""
    return {**asdict(finding), "outcome": finding.outcome.value}
