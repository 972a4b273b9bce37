"""Clients over HTTP whose application is killed: each retries until its results are published and it gets a response.

The responses are judged by the records in the topics.
"""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Application
from tests.integration.live import Wire
from tests.support import wait_until

#: The kill of all processes costs a start of Spark.
IS_SOAK = "FALKIRK_STRIKES" in os.environ


@dataclass
class Client:
    """Repeats one request until it gets a final response.

    Attributes: early: a response that came before its results were published.
    """

    url: str
    home: Path
    wire: Wire
    request_id: str
    word: str
    minimal: bool = False
    told: tuple[int, Any] | None = None
    refusals: Counter[str] = field(default_factory=Counter)
    early: str = ""

    def start(self) -> "Client":
        self.told = None
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()
        return self

    def _ask(self) -> None:
        body = json.dumps({"id": self.request_id, "word": self.word}).encode()
        headers = {"Authorization": f"Bearer {(self.home / 'http.token').read_text()}"}
        headers |= {"Prefer": "return=minimal"} if self.minimal else {}
        while self.told is None:
            try:
                request = urllib.request.Request(self.url, data=body, headers=headers)
                with urllib.request.urlopen(request, timeout=60) as response:
                    answer = json.loads(response.read() or b"null")
                    self._look(answer)
                    self.told = response.status, answer
            except urllib.error.HTTPError as error:
                self.refusals[json.loads(error.read())["condition"]] += 1
                if error.code not in (503, 504):
                    self.told = error.code, None
            except OSError as error:  # no process listens
                self.refusals[type(error).__name__] += 1
            threading.Event().wait(0.1)

    def _look(self, answer: Any) -> None:
        """Check that the response is true."""
        tag = self.wire.tag
        if answer is not None and answer not in self.wire.rows(f"answers-{tag}"):
            self.early = "answered, but the answer is not in the topic"
        if answer is None and self.word not in {row["word"] for row in self.wire.rows(f"counts-{tag}")}:
            self.early = "acknowledged, but a result is not in the topic"


def test_clients_are_told_once_it_is_so_through_kills(broker: Broker, home: Path, tag: str) -> None:
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    answers, counts = wire.topic("answers"), wire.topic("counts")
    application = Application(APPS / "push.py", broker.bootstrap, home, {"TAG": tag})

    def ask(request_id: str, word: str, *, minimal: bool = False) -> Client:
        return Client(url, home, wire, request_id, word, minimal).start()

    def await_told(*asked: Client) -> None:
        def told() -> bool:
            assert application.runs(), application.log()
            return all(client.told is not None for client in asked)

        application.wait(told, 180, f"clients to get a response; {[c for c in asked if c.told is None]}")

    application.start()
    try:
        wait_until(lambda: (home / "http.token").exists() and (home / "http.json").exists(), 60, "the gateway")
        url = json.loads((home / "http.json").read_text())["url"] + "/queries"
        first = [ask(f"a{n}", f"a{n}", minimal=n % 2 == 1) for n in range(4)]
        first += [ask("silent", "silence"), ask("forgotten", "forgotten")]
        await_told(*first)
        assert [client.told and client.told[0] for client in first] == [200, 204, 200, 204, 204, 200]

        # The host dies while clients wait; they keep waiting.
        second = [ask(f"b{n}", f"b{n}") for n in range(2)]
        os.kill(application.status()["pid"], signal.SIGKILL)
        second += [ask(f"c{n}", f"c{n}", minimal=n % 2 == 1) for n in range(2)]
        await_told(*second)
        assert not [client.refusals for client in second if client.refusals.keys() - {"RESULT_AWAITED"}]

        # All retry; in the soak all processes die before, while some clients wait and others have their response.
        third = [ask(f"d{n}", f"d{n}") for n in range(2)]
        wait_until(
            lambda: _requests(wire, home) >= {client.request_id for client in third}, 30, "the requests to be sent"
        )
        if IS_SOAK:
            application.kill_everything()
        clients = [*first, *second, *third]
        before = {client.request_id: client.told for client in (*first, *second)}
        await_told(*third, *[client.start() for client in (*first, *second)])
        after = {client.request_id: client.told for client in (*first, *second)}
        assert before.pop("forgotten") != after.pop("forgotten"), (
            "a forgotten request runs again, with another random value"
        )
        assert after == before
        waiting = ask("e", "e")
        wait_until(lambda: "e" in _requests(wire, home), 30, "a request to wait")
    finally:
        assert application.stop() == 0, application.log()
    wait_until(lambda: waiting.told is not None or waiting.refusals["BEING_STOPPED"], 10, "its client to read that")
    waiting.told = waiting.told or (503, None)
    assert not [client for client in clients if client.early]
    found = Counter(row["id"] for row in wire.rows(answers))
    assert found.pop("forgotten") > 1, "without deduplication there are two answers: the test notices"
    found.pop("e", None)
    asked = {client.request_id for client in clients} - {"silent", "forgotten"}
    assert found == dict.fromkeys(asked, 1), "a request was not answered exactly once"
    counted = Counter(row["word"] for row in wire.rows(counts))
    assert {counted[word] for word in asked} == {1}, counted


def _requests(wire: Wire, home: Path) -> set[str]:
    """Return the ids in the topic of requests."""
    identity = json.loads((home / "falkirk.json").read_text())["identity"]
    return {(record.key or b"").decode() for record in wire.records(f"falkirk.push.{identity}.queries")}
