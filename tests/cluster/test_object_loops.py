"""An iteration on a cluster whose home is in an object store: tasks on executors fetch and upload the files of loops.

Each start is in a new folder, as on another machine. So it has the object store and the database alone.
"""

import json
from pathlib import Path

import psutil
import pytest

from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import START_S, Application
from tests.chaos.test_object_home import CLUSTER, Machines, are_components
from tests.cluster.test_object_live import resume
from tests.objects import BUCKET
from tests.postgres import Postgres
from tests.support import suspend_all

#: Epochs of this many records have rounds of several jobs on both executors.
ROWS = 10


class Rounds(Machines):
    """Machines for a loop whose rounds are Spark jobs, on a cluster of two executors."""

    def __init__(self, broker: Broker, postgres: Postgres, tag: str, folder: Path) -> None:
        super().__init__("object_rounds.py", broker, postgres, tag, folder, *CLUSTER)
        self._files, self._store, self._tag = f"/{BUCKET}/{tag}/regions/components/_files/", postgres.url(), tag
        self._folder = folder

    def uploads(self) -> int:
        """Return how many files of loops tasks have begun to upload."""
        return sum(method == "PUT" and path.startswith(self._files) for method, path in [*self.objects.requests])

    def await_result(self, application: Application) -> None:
        """Send records, and wait until the changes add up to the result."""
        self.send(ROWS)
        application.wait(lambda: are_components(self), START_S, lambda: f"components of {self.sent} numbers")

    def begin_rounds(self, application: Application) -> None:
        """Send records, and wait until tasks upload what they have computed from them."""
        before = self.uploads()
        self.send(ROWS)
        application.wait(lambda: self.uploads() > before + 3, START_S, "rounds")

    def named_and_there(self) -> tuple[set[str], set[str]]:
        """Return the files that kept states name, and those that are in the object store."""
        environment = pytest.MonkeyPatch()
        for name, value in self.objects.environment.items():
            environment.setenv(name, value)
        try:
            data = f"s3a://{BUCKET}/{self._tag}"
            with open_home(self._folder / "reader", "shop", self._store, data=data, visits=True) as home:
                log = EpochLog("epochs:components", "components", home.data_of("components"), home.store)
                states = [log.state(epoch) for epoch in log.epochs() if epoch.state is not None]
                notes = [json.loads((state / "iterate-1.json").read_text()) for state in states]
                return {name for note in notes for name in note["files"]}, {*(log.files() / "iterate-1").listed()}
        finally:
            environment.undo()


@pytest.mark.soak
def test_an_executor_is_killed_and_then_everything(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    machines = Rounds(broker, postgres, tag, tmp_path)
    try:
        with machines.application(1) as application:
            machines.await_result(application)
            machines.begin_rounds(application)
            application.executors()[0].kill()
            machines.await_result(application)
            machines.begin_rounds(application)
            application.kill()
        assert not list((tmp_path / "machine-1").rglob("*.arrow")), "executors have copies in their own folders alone"
        with machines.application(2) as application:
            machines.await_result(application)
            application.stop()
        named, there = machines.named_and_there()
        assert named == there, "files of killed attempts were deleted"
    finally:
        machines.objects.close()


@pytest.mark.soak
def test_a_former_owner_that_resumes_in_a_round_harms_nothing(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    machines = Rounds(broker, postgres, tag, tmp_path)
    suspended: list[psutil.Process] = []
    try:
        with machines.application(1) as former:
            machines.await_result(former)
            machines.begin_rounds(former)
            suspended += former.processes()
            suspend_all(suspended)
            with machines.application(2) as application:
                machines.await_result(application)
                resume(suspended)
                for _ in range(3):
                    machines.await_result(application)
                application.kill()
        with machines.application(3) as application:
            machines.await_result(application)
            application.stop()
        named, there = machines.named_and_there()
        assert named <= there
    finally:
        resume(suspended)
        machines.objects.close()
