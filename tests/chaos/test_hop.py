"""The word index under kill -9 of everything: a hop between two regions, several change records per page."""

import os
from itertools import islice
from pathlib import Path

import pytest

from demo.load import PageProducer
from demo.pages import pages
from demo.word_index import INDEX, PAGES, example, judge
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Application
from tests.support import wait_until


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_a_kill_of_the_word_index(broker: Broker, home: Path) -> None:
    topics = Topics(Connection.of(broker.bootstrap))
    for topic in (PAGES, INDEX):
        topics.create(topic, 2, {})

    def released() -> int:
        return sum(topics.end_positions(INDEX).values())

    application = Application(example(), broker.bootstrap, home, {})
    application.start()
    producer = PageProducer(broker.bootstrap, PAGES, islice(pages(), 400), rate=8.0)
    producer.warm.set()
    try:
        application.wait_committed(-1)
        producer.start()
        application.wait_next_commit()
        before = released()
        wait_until(lambda: released() > before + 100, 120, "change records after the commit")
        application.kill_everything()
        application.wait_committed(-1)
        suppressed = application.suppressed().total()
        producer.stopping.set()
        producer.join()
        application.wait(lambda: released() >= producer.changes_due, 180, "all change records")
        application.wait_next_commit()
        verdict = judge(broker.bootstrap)
    finally:
        producer.stopping.set()
        application.stop()
    print(f"suppressed {suppressed} replayed outputs; {verdict.counts}")
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert suppressed > 0
