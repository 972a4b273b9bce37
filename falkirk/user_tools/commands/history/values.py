"""Values: the states of an application's past and the effect of a rollback, for JSON and for the dashboard."""

from typing import Any

from falkirk.user_tools.commands.history.application import PastCut, Preview
from falkirk.user_tools.commands.history.targets import RollbackTarget


def cut_json(past: PastCut) -> dict[str, Any]:
    """Return a cut as plain values."""
    return {
        "cut": past.cut.number,
        "since_cut": past.cut.first_number,
        "made_at_s": past.cut.made_at_s,
        "since_s": past.cut.since_s,
        "checkpoints": past.cut.asked,
        "input_read_again": past.again,
        "outside": dict(past.outside),
    }


def preview_json(target: RollbackTarget, preview: Preview) -> dict[str, Any]:
    """Return the effect of a rollback as plain values."""
    return {
        "cut": None if target.cut is None else target.cut.number,
        "cut_made_at_s": None if target.cut is None else target.cut.made_at_s,
        "moves": [
            {
                "region": m.region,
                "from": m.newest.number,
                "to": m.to.number,
                "made_at_s": m.to.made_at_s,
                "input_read_again": m.again,
                "results_taken_back": m.taken_back,
                "why": m.why,
            }
            for m in preview.moves
        ],
        "stays": list(preview.stays),
        "outside": dict(preview.outside),
    }
