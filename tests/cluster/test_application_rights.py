"""The rights of the application in docs/how-to/security.md are enough for all that uses Kafka in its own way.

It logs in with TLS and SASL.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from falkirk.checker import Guarantee
from tests.chaos.harness import LIGHT, MOMENTS_MAX, Application, Load, judge_counts, settle
from tests.cluster.rights import GROUP, READ, TOPIC, login, of_the_application, rights
from tests.cluster.secured import PASSWORD, Secured
from tests.integration.live import Wire

FULL = Path(__file__).parent / "apps" / "rights.py"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates")


#: Runs commands for several users, one after the other, in one JVM: argv[1] has the arguments of each.
_COMMANDS = """
import json, os, sys
from click.testing import CliRunner
from falkirk.cli import main
for user, *options in json.loads(sys.argv[1]):
    os.environ["KAFKA_USER"] = user
    told = CliRunner().invoke(main, [*options, "--json"])
    print(json.dumps([told.exit_code, told.stdout, told.stderr + str(told.exception)]))
"""


def test_the_application(guarded: Secured, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that uses Kafka in its own way works with exactly the documented rights: a hop, a batch with a view, an
    iteration, copies, requests over HTTP, dead letters of each, and a restart. Then users verify it and look at it.

    The application logs in by password until everything is killed, and by token from then on. The broker fences its
    outputs."""
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
        application.wait(lambda: [r["word"] for r in wire.rows(counts)].count("ash") == number, 120, "counts")
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
        with Load(guarded.open.bootstrap, events, rate=LIGHT) as load:
            given, by_token = guarded.tokens.given, {"SECURED": guarded.by_token, "TOKENS": guarded.tokens.url}
            for _ in range(MOMENTS_MAX):
                checkpoint = application.wait_results_behind({"counts": lambda: wire.count(counts)}, {"counts": 40})
                if application.kill_everything_behind(checkpoint, **by_token):
                    break
            application.wait(is_up, 240, "checkpoints of the live regions")
            assert application.suppressed().total() > 0
        assert guarded.tokens.given > given
        work(2)
        settle(application, guarded.open.bootstrap, load.sent + 2, counts)
        assert "AuthorizationException" not in application.log()
    verdict = judge_counts(guarded.open.bootstrap, events, counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert verdict.counts.observed_outputs == verdict.counts.inputs == load.sent + 2
    for file in ("run.log", "host.log", "status.json"):
        assert PASSWORD not in (home / file).read_text(errors="replace"), f"the password is in {file}"

    auditor, judge = f"auditor-{tag}", f"judge-{tag}"
    read = [right for topic in inputs for right in rights(TOPIC, topic, READ)]
    login(guarded, auditor, [*read, *rights(GROUP, "spark-kafka-", READ, is_prefix=True)], monkeypatch)
    written = [right for topic in (*outputs, *dead) for right in rights(TOPIC, topic, READ)]
    groups = rights(GROUP, "falkirk-check-", READ, is_prefix=True)
    login(guarded, judge, [*read, *written, *groups], monkeypatch)
    looker, at_home = f"looker-{tag}", ("--home", str(home))
    internal = rights(TOPIC, f"falkirk.{name}.", READ, is_prefix=True)
    look = [*read, *written, *internal, *rights(GROUP, "falkirk", READ, is_prefix=True)]
    login(guarded, looker, look, monkeypatch)
    asked = [
        [auditor, "verify", "determinism", str(FULL)],
        [judge, "verify", "outputs", str(FULL), *at_home, "--sink", "counts"],
        [looker, "peek", str(FULL), *at_home, counts, "-n", "2"],
        [looker, "why", str(FULL), *at_home, f"{counts}/0@0", "--look", "1000000"],
    ]
    command = [sys.executable, "-c", _COMMANDS, json.dumps(asked)]
    told = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    audited, judged, peeked, explained = map(json.loads, told.stdout.splitlines())
    assert (audited[0], judged[0], peeked[0], explained[0]) == (0, 0, 0, 0), told.stdout + told.stderr
    assert [each["unit"] for each in json.loads(peeked[1])] == ["counts", "counts"]
    origin = json.loads(explained[1])["origin"]
    assert origin["made_of"] is not None, origin["not_recomputed"]
    assert (origin["made_of"]["agrees"], {r["record"]["topic"] for r in origin["made_of"]["records"]}) == (
        True,
        {events},
    )
    outcomes = {each["name"]: each["outcome"] for each in json.loads(audited[1])}
    assert outcomes.pop("replies") == "not run", "requests have no sample"
    assert outcomes == dict.fromkeys(("counts-by-word", "counts", "totals", "components"), "same")
    assert json.loads(judged[1])["guarantee"] == "exactly-once"
