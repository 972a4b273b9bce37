"""Real Spark on a broker that requires TLS and SASL, with a client's certificate and a password, or with a token.

The application has only the rights that docs/operations.md lists.
"""

import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # they are public

from falkirk.check import Guarantee
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from tests.chaos.harness import Application, Load, judge_counts, settle
from tests.cluster.secured import PASSWORD, USER, Secured, secured
from tests.support import wait_until

APP = Path(__file__).parent / "apps" / "secured.py"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
SETTINGS, CREATE, DELETE = AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE, AclOperation.DELETE

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates")


def allow_what_is_documented(broker: Secured, events: str, counts: str) -> None:
    """Give the user the rights in docs/operations.md, "SASL and TLS"."""
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    broker.allow(topic, events, [READ, DESCRIBE, SETTINGS])
    broker.allow(topic, counts, [READ, WRITE, DESCRIBE, SETTINGS])
    for own in ("falkirk.", f"{events}.dead-letters", f"{counts}.dead-letters"):
        broker.allow(topic, own, [READ, WRITE, DESCRIBE, SETTINGS, CREATE, DELETE], prefix=True)
    for readers in ("falkirk", "spark-kafka-"):
        broker.allow(group, readers, [READ], prefix=True)
    broker.allow(ResourceType.TRANSACTIONAL_ID, "falkirk.secured.", [WRITE, DESCRIBE], prefix=True)


def test_a_kill_on_a_broker_that_asks_for_tls_and_sasl(tmp_path: Path, home: Path, tag: str) -> None:
    """The application logs in by password until everything is killed, and by token from then on. The broker fences its
    outputs."""
    events, counts = f"events-{tag}", f"counts-{tag}"
    with secured(tmp_path / "secured") as broker:
        topics = Topics(Connection.of(broker.open.bootstrap))
        for topic in (events, counts):
            topics.create(topic, 2, {})
        broker.add_user()
        allow_what_is_documented(broker, events, counts)
        env = {"KAFKA_USER": USER, "KAFKA_PASSWORD": PASSWORD, "CA": str(broker.ca), "EVENTS": events, "COUNTS": counts}
        by_password = {"SECURED": broker.by_password, "CLIENT": str(broker.client)}
        by_token = {"SECURED": broker.by_token, "TOKENS": broker.tokens.url}
        application = Application(APP, None, home, env | by_password)
        application.start()
        try:
            with Load(broker.open.bootstrap, events) as load:
                application.wait_committed(1)
                application.wait_next_commit()
                before = _count(topics, counts)
                wait_until(lambda: _count(topics, counts) > before + 100, 120, "results after a checkpoint")
                assert broker.tokens.given == 0
                application.kill_everything(**by_token)
                application.wait_committed(0)
                assert application.suppressed() > 0
            settle(application, broker.open.bootstrap, load.sent, counts)
        finally:
            application.stop()
        verdict = judge_counts(broker.open.bootstrap, events, counts)
        assert broker.tokens.given > 0
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert verdict.counts.observed_outputs == verdict.counts.inputs >= load.sent
    for file in ("run.log", "host.log", "status.json"):
        assert PASSWORD not in (home / file).read_text(errors="replace"), f"the password is in {file}"


def _count(topics: Topics, topic: str) -> int:
    return sum(topics.end_positions(topic).values())
