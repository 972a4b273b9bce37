"""Replays one schedule and prints its events: `make simulate SEED=…`."""

import sys
import tempfile
from pathlib import Path

from tests.simulation.run import Run


def main(seed: int) -> int:
    """Run a seed; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(seed, Path(folder))
        for stage in run.world.layout.stages.values():
            kind = "" if stage.deterministic else ", not deterministic"
            held = run.world.layout.held.get(stage.output)
            print(f"{stage.name}: {', '.join(stage.inputs)} → {stage.output}{f' → {held}' if held else ''}{kind}")
        try:
            outcome = run.go()
        except Exception as error:
            print(*run.outcome.trace, sep="\n")
            print(f"seed {seed}: {type(error).__name__}: {error}")
            return 1
    print(*outcome.trace, sep="\n")
    print(
        f"seed {seed}: as a run without failures: {outcome.outputs} outputs, {outcome.crashes} coordinators died, "
        f"{outcome.recoveries} recoveries, {outcome.voided} records voided, {outcome.collected} collected, "
        f"{outcome.damaged} checkpoints damaged{', until it was refused for one of them' * outcome.refused}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
