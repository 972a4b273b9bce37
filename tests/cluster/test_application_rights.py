"""The rights of the application in docs/how-to/security.md are enough for all that uses Kafka in its own way."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.harness import Application
from tests.cluster.rights import GROUP, READ, TOPIC, Right, login, of_the_application, rights
from tests.cluster.secured import PASSWORD, Secured
from tests.integration.live import Wire

FULL = Path(__file__).parent / "apps" / "rights.py"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates")


def test_the_application(guarded: Secured, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that uses Kafka in its own way works with exactly the documented rights: a hop, a batch with a view, an
    iteration, copies, requests over HTTP, dead letters of each, and a restart. Then two users verify it."""
    name, wire = f"rights-{tag}", Wire(bootstrap=guarded.open.bootstrap, tag=tag)
    inputs = events, edges = [wire.topic(topic) for topic in ("events", "edges")]
    outputs = counts, totals, components, _ = [
        wire.topic(topic) for topic in ("counts", "totals", "components", "replies")
    ]
    dead = [f"{events}.dead-letters", f"{counts}.dead-letters"]
    dead += [f"{name}-{batch}.dead-letters" for batch in ("totals", "components", "replies")]
    login(guarded, name, of_the_application(name, inputs, outputs, dead), monkeypatch)
    env = {
        "SECURED": guarded.by_password, "KAFKA_USER": name, "KAFKA_PASSWORD": PASSWORD, "CA": str(guarded.ca),
        "CLIENT": str(guarded.client), "TAG": tag,
    }  # fmt: skip
    application = Application(FULL, None, home, env, "--no-standby")

    def ask(number: int) -> dict[str, object]:
        url, token = json.loads((home / "http.json").read_text())["url"], (home / "http.token").read_text()
        body = json.dumps({"id": f"q{number}", "word": "ash"}).encode()
        asked = urllib.request.Request(f"{url}/queries", data=body, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=120) as response:
            return dict(json.loads(response.read()))

    def work(number: int) -> None:
        wire.send(events, [{"word": "ash", "n": number}, {"n": 1}])
        wire.send(edges, [{"src": number, "dst": number + 1}])
        wire.send(edges, [b"no JSON"])
        application.wait(lambda: len(wire.rows(counts)) == number, 120, "counts")
        application.wait(lambda: {"word": "ash", "total": number} in wire.rows(totals), 120, "totals")
        application.wait(lambda: len(wire.rows(components)) > number, 120, "components")
        assert ask(number) == {"id": f"q{number}", "word": "ash", "total": number}
        for topic in (dead[0], dead[2], dead[3]):
            application.wait(lambda topic=topic: wire.count(topic) >= number, 120, f"dead letters in {topic}")  # type: ignore[misc]

    def is_up() -> bool:
        commits = application.last_commits()
        return bool(commits) and min(commits.values()) >= 0

    with application:
        application.wait(is_up, 240, "checkpoints of the live regions")
        work(1)
        application.kill_everything()
        application.wait(is_up, 240, "checkpoints of the live regions")
        work(2)
        assert "AuthorizationException" not in application.log()

    def verify(user: str, given: list[Right], *options: str) -> list[dict[str, Any]]:
        login(guarded, user, given, monkeypatch)
        command = [sys.executable, "-m", "falkirk.cli", "verify", *options, "--json"]
        told = subprocess.run(command, env={**os.environ, **env, "KAFKA_USER": user}, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout + told.stderr
        found = json.loads(told.stdout)
        return found if isinstance(found, list) else [found]

    read = [right for topic in inputs for right in rights(TOPIC, topic, READ)]
    found = verify(
        f"auditor-{tag}", [*read, *rights(GROUP, "spark-kafka-", READ, is_prefix=True)], "determinism", str(FULL)
    )
    outcomes = {each["name"]: each["outcome"] for each in found}
    assert outcomes.pop("replies") == "not run", "requests have no sample"
    assert outcomes == dict.fromkeys(("counts-by-word", "counts", "totals", "components"), "same")
    written = [right for topic in (*outputs, *dead) for right in rights(TOPIC, topic, READ)]
    groups = rights(GROUP, "falkirk-check-", READ, is_prefix=True)
    (judged,) = verify(
        f"judge-{tag}", [*read, *written, *groups], "outputs", str(FULL), "--home", str(home), "--sink", "counts"
    )
    assert judged["guarantee"] == "exactly-once"
