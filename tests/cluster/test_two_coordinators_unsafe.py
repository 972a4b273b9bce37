"""The mechanisms of a takeover switched off: then the tests of chaos/test_two_coordinators.py see the fault."""

import time
from pathlib import Path

import pytest

from falkirk.checker import Guarantee
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import LIGHT, Load, judge_counts, settle
from tests.chaos.test_two_coordinators import LEASE_S, cut_off_by, pair
from tests.postgres import Postgres
from tests.proxy import Proxy
from tests.support import is_alive, suspend_all, wait_until

pytestmark = pytest.mark.soak


def test_an_owner_that_does_not_check_its_lease_lives_when_another_starts(
    broker: Broker, home: Path, tag: str, postgres: Postgres
) -> None:
    with (
        Proxy(postgres) as proxy,
        pair(broker, home, tag, postgres.url(), owner=cut_off_by(proxy, postgres), OFF="lease") as both,
        Load(broker.bootstrap, both.run.events, rate=LIGHT),
    ):
        both.await_results_behind_a_commit()
        host = both.one.host()
        proxy.cut()
        wait_until(lambda: both.lease().generation == 2, LEASE_S + 5, both.other.output)
        assert both.one.runs()
        assert is_alive(host), "two coordinators run, and two hosts"


def test_a_suspended_owner_that_nothing_ends_publishes_again(
    broker: Broker, home: Path, tag: str, postgres: Postgres
) -> None:
    with (
        pair(broker, home, tag, postgres.url(), SINKS_TRANSACTIONAL="no", OFF="lease generation claim") as both,
        Load(broker.bootstrap, both.run.events, rate=LIGHT) as load,
    ):
        both.await_results_behind_a_commit()
        both.other.forget_status()
        suspended_s, stopped = time.monotonic(), both.one.processes()
        suspend_all(stopped)
        both.await_takeover(suspended_s)
        for process in stopped:
            process.resume()
        sent = load.sent
        wait_until(lambda: load.sent > sent + 10 * LIGHT, 60, "load for two owners")
        load.__exit__()
        wait_until(lambda: both.run.released() > load.sent, 60, "more results than records")
        both.one.kill()
        settle(both.other, broker.bootstrap, load.sent, both.run.counts)
        verdict = judge_counts(broker.bootstrap, both.run.events, both.run.counts)
        assert verdict.guarantee is not Guarantee.EXACTLY_ONCE, verdict.counts
        assert verdict.counts.observed_outputs > verdict.counts.inputs
