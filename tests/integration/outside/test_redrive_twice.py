"""Two `falkirk redrive` of one home at once: no record is sent twice.

The process that began first ends with `REDRIVE_TAKEN_OVER`. If it has just met a refused record, it becomes the newest
one again. Then it continues without the records that the other one has sent, and the other one ends.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from falkirk.errors import LogError
from falkirk.recovery.ownership.folder import open_home
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.redrive.sending import RedriveSender
from tests.integration.live import Wire
from tests.integration.outside.test_redrive import Stage

#: Dead letters, and how many of them one transaction sends here.
LETTERS, AT_ONCE = 30, 3
#: Larger than the topic permits: an older record of this size has expired, and its letter has it whole.
LIMIT, TOO_LARGE = 2_000, 5_000
#: Another process that sends the dead letters of a home: it prints a line when it is ready, and waits for one.
PROCESS = """
import json, sys
from pathlib import Path
from falkirk.user_tools.commands import redrive
from falkirk.errors import FalkirkError
from falkirk.recovery.ownership.folder import attach_home
from falkirk.spark_setup.broker import Broker
from tests.integration.live import Wire
from tests.integration.outside.test_redrive import Stage

bootstrap, tag, home, redrive.AT_ONCE = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
with attach_home(home, "again") as held:
    stage = Stage(Wire(bootstrap=bootstrap, tag=tag), held)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(json.dumps(stage.again()))
    except FalkirkError as error:
        print(json.dumps({"condition": error.condition}))
"""


@pytest.fixture
def stage(broker: Broker, home: Path, tag: str) -> Iterator[Stage]:
    with open_home(home, "again") as opened:
        yield Stage(Wire(bootstrap=broker.bootstrap, tag=tag), opened, limit=LIMIT)


def bury(stage: Stage, *, too_large: int | None = None) -> None:
    """Bury inputs that have expired, so that their letters alone have them. Args: too_large: this one is, now."""
    for number in range(LETTERS):
        stage.bury("left", 0, stage.put(0, b"x"), value=f"{number}".ljust(TOO_LARGE if number == too_large else 3))
    stage.wire.expire(stage.events)


def sent(stage: Stage) -> Counter[int]:
    """Return how often each input was sent again."""
    return Counter(int(value or b"") for _, _, value, _ in stage.inputs().elements())


def test_two_processes_at_once(stage: Stage) -> None:
    bury(stage, too_large=LETTERS - 2)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, stage.wire.bootstrap, stage.wire.tag, str(stage.home.path), str(AT_ONCE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    told = []
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        told.append(json.loads(process.communicate(timeout=300)[0]))
        assert process.returncode == 0
    found = sent(stage)
    assert found == Counter(set(range(LETTERS)) - {LETTERS - 2})
    assert all(one.get("condition", "REDRIVE_TAKEN_OVER") == "REDRIVE_TAKEN_OVER" for one in told)
    assert any("condition" not in one for one in told), "the newest one is not refused"


def meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch, place: str, *, at: int) -> list[dict[str, int]]:
    """Let another redrive run to its end before this call of a method of the sender."""
    real, calls, reports = getattr(RedriveSender, place), 0, list[dict[str, int]]()

    def call(self: RedriveSender, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            monkeypatch.setattr(RedriveSender, place, real)
            reports.append(stage.again())
        return real(self, *arguments)

    monkeypatch.setattr(RedriveSender, place, call)
    return reports


@pytest.mark.parametrize("at", [1, 2, 5])
def test_one_that_another_has_overtaken_sends_nothing_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    bury(stage)
    monkeypatch.setattr("falkirk.user_tools.commands.redrive.AT_ONCE", AT_ONCE)
    reports = meanwhile(stage, monkeypatch, "send", at=at)
    with pytest.raises(LogError) as refused:
        stage.again()
    assert refused.value.condition == "REDRIVE_TAKEN_OVER"
    assert reports[0]["sent"] == LETTERS - (at - 1) * AT_ONCE
    assert sent(stage) == Counter(range(LETTERS))


def test_one_that_was_overtaken_knows_it_when_its_client_has_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client learns it between two records. The next one gets an error that says only that it was fatal."""
    bury(stage)
    pause = threading.Event()
    reports = meanwhile(stage, monkeypatch, "send", at=1)

    class Slow(Producer):
        def produce(self, *given: Any, **options: Any) -> None:
            super().produce(*given, **options)
            while reports and not pause.wait(0.01):
                super().produce(*given, **options)

    monkeypatch.setattr("falkirk.user_tools.redrive.sending.Producer", Slow)
    with pytest.raises(LogError) as refused:
        stage.again()
    assert refused.value.condition == "REDRIVE_TAKEN_OVER"
    assert sent(stage) == Counter(range(LETTERS))


@pytest.mark.parametrize("place", ["_commit", "_open"])
def test_a_refused_record_lets_it_not_send_what_another_has_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """After a refused record, the sender opens a new producer, which would be the newest one of the home."""
    bury(stage, too_large=1)
    monkeypatch.setattr("falkirk.user_tools.commands.redrive.AT_ONCE", AT_ONCE)
    reports = meanwhile(stage, monkeypatch, place, at=1 if place == "_commit" else 2)
    if place == "_commit":
        with pytest.raises(LogError) as refused:
            stage.again()
        assert refused.value.condition == "REDRIVE_TAKEN_OVER", refused.value.parameters
    else:
        told = stage.again()
        assert (told["sent"], told["refused"]) == (0, 1)
    assert reports[0]["sent"] == LETTERS - 1
    assert sent(stage) == Counter(set(range(LETTERS)) - {1})
    assert stage.again()["sent"] == 0
