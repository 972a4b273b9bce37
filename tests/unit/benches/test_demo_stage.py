"""The demo's last lines are about the application's last incarnation."""

import json
from dataclasses import asdict
from pathlib import Path

from demo import stage
from falkirk.runtime.spark.status import RegionStatus


def test_dropped_results_are_those_of_the_status(tmp_path: Path) -> None:
    assert stage.suppressed(tmp_path) == {}, "it ended before it had a status"
    regions = [asdict(RegionStatus(name="index", state="running", suppressed=3))]
    (tmp_path / "status.json").write_text(json.dumps({"at_s": 1.0, "regions": regions}))
    assert stage.suppressed(tmp_path) == {"index": 3}
