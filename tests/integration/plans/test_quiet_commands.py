"""Commands that only look at an application: a real session's log and the JVM's warnings stay off the terminal."""

import subprocess
import sys
from pathlib import Path

from falkirk.environment.broker import Broker
from tests.integration.live import Wire

APPLICATION = """
import falkirk as fk

app = fk.App("quiet", kafka="{broker}")
app.source("words", fk.Kafka("{words}", schema="word STRING NOT NULL", key="word"))


@app.stream(fk.Lazy("5 seconds"))
def counts(words):
    return words.groupBy("word").count()


app.sink("counts", counts, fk.Kafka("{counts}", key="word"))
"""


#: Runs both commands in one process, which starts one JVM: each makes a session of its own.
BOTH = """
import sys
from falkirk.cli import main

for command in ("plan", "verify outputs"):
    print("--", command, flush=True)
    main([*command.split(), sys.argv[1]], standalone_mode=False)
"""


def test_nothing_but_the_answer_is_printed(broker: Broker, tag: str, tmp_path: Path) -> None:
    wire, file = Wire(bootstrap=broker.bootstrap, tag=tag), tmp_path / "quiet.py"
    topics = {name: wire.topic(name, 2) for name in ("words", "counts")}
    wire.send(topics["words"], [{"word": "a"}], key="a")
    wire.send(topics["counts"], [{"word": "a", "count": 1}], key="a")
    file.write_text(APPLICATION.format(broker=broker.bootstrap, **topics))
    done = subprocess.run([sys.executable, "-c", BOTH, str(file)], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    nothing, plan, verdict = done.stdout.split("-- ")
    assert nothing == ""
    for answer, command in ((plan, "plan"), (verdict, "verify outputs")):
        assert answer.startswith(command)
        assert "counts" in answer
