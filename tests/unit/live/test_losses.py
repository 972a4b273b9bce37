"""When an observed position is recorded on a cluster: after a commit that nobody lost a task for."""

from falkirk.runtime.spark.live.losses import Observations


class Cluster:
    def __init__(self) -> None:
        self.lost = False


def test_an_observation_waits_for_the_commit_of_the_batch_that_it_was_made_under() -> None:
    observations = Observations(lambda: False)
    assert observations.proven(3, {"out": {0: 10}}) is None
    assert observations.proven(3, {"out": {0: 20}}) is None
    assert observations.proven(4, {"out": {0: 30}}) == (4, {"out": {0: 20}})
    assert observations.proven(4, {"out": {0: 40}}) is None
    assert observations.proven(7, {"out": {0: 50}}) == (5, {"out": {0: 40}})


def test_none_is_recorded_whose_batch_may_have_run_a_task_again() -> None:
    """Batch 4 had sent up to 20 when its executor was lost; its commit may lie before that."""
    cluster = Cluster()
    observations = Observations(lambda: cluster.lost)
    assert observations.proven(3, {"out": {0: 20}}) is None
    cluster.lost = True
    assert [observations.proven(commit, {"out": {0: 30}}) for commit in (3, 4, 5)] == [None, None, None]
