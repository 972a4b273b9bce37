"""An application in the session of the tests, with the waits of one in separate processes.

A start costs a second or two of processor time instead of twenty, because the JVM has loaded its classes and compiled
their code. Its processes can't be killed: instead of that all queries end at once, so that live regions return to their
checkpoints.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from falkirk.declare.load import load_application
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.runtime.supervision.supervised_region import SupervisedRegion
from tests.chaos.watched import Watched


class Here(Watched):
    """The application of a file, in this process. The environment that the file needs is this process's."""

    def __init__(self, file: Path, bootstrap: str, home: Path) -> None:
        super().__init__(home)
        self._file, self._connection = file, Connection.of(bootstrap)
        self._query: Query | None = None

    @property
    def query(self) -> Query:
        """The query of the last start."""
        assert self._query is not None
        return self._query

    def start(self) -> None:
        app = load_application(self._file)
        self._query = run_here(app, self._connection, home=self.home, create_topics=True)

    def stop(self) -> int:
        self.query.stop()
        return 0

    def ended(self) -> int:
        """Wait until it ends. A command that finds it stopped would end the processes that its home still names."""
        assert self.query.awaitTermination(90), self.log()
        assert not (self.home / "processes.json").exists()
        return 0

    def runs(self) -> bool:
        return self.query.isActive

    def status(self) -> dict[str, Any]:
        return {"regions": [asdict(region) for region in self.query.status], "at_s": time.time()}

    def log(self) -> str:
        return f"{self.query.exception()}\n{self.query.status}"

    def end_all_queries(self) -> None:
        """End the queries of all live regions at once, those of twins first; wait until all have begun again."""
        before = self._incarnations()
        units = [unit for unit in self.query._host._units.values() if isinstance(unit, SupervisedRegion)]
        twins = [unit.live.twin.query for unit in units if unit.live.twin is not None]
        for query in (*twins, *self.query.queries):
            if query is not None:
                query.stop()

        def have_begun() -> bool:
            now = self._incarnations()
            return all(now[name] > incarnation for name, incarnation in before.items())

        self.wait(have_begun, 120, f"incarnations after {before}")

    def _incarnations(self) -> Mapping[str, int]:
        return {region.name: region.incarnation for region in self.query.status if region.incarnation}
