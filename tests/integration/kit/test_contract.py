"""The contract of the test kit: an application gives there what it gives on a broker, with real Spark.

One application has several cases (`cases.py`), so that it starts once. It runs until its input is processed. The judge
is equality of results, of dead letters, of answers over HTTP, and of the promises in the plan.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.platform.traced import OFF
from falkirk.recovery.ownership.credentials import token_of
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.supervision.counts import KeptCounts
from falkirk.runtime.supervision.gateway import Gateway
from falkirk.runtime.supervision.measurements import Launch
from falkirk.runtime.supervision.query import Query
from falkirk.runtime.supervision.start import application_session, assemble_host
from falkirk.spark_setup.broker import Broker
from falkirk.testing import run
from falkirk.user_tools.testkit.chunks import ChunkSteps
from falkirk.user_tools.testkit.place import IDENTITY
from falkirk.user_tools.testkit.steps import RegionResult
from tests.integration.kit.cases import CASES, Case
from tests.integration.live import Wire
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: After the times in the input, as the broker's clock is.
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TIMEOUT_S = 300.0
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
#: The cases of each run of the tests. A case costs some seconds of CPU time.
QUICK = ("requests", "dropDuplicates", "held")
#: A run of all cases would need more than the 24 slots of a test's session: so these have a run of their own.
NEWEST = ("lookup", "several topics")
OTHERS = tuple(name for name in CASES if name not in ("dropDuplicates", *NEWEST))

Rows = list[dict[str, Any]]


@dataclass(kw_only=True)
class Found:
    """The results of one run.

    Args: identity: of its home. rows: by sink. letters: all dead letters. answers: by the id of the request; None: it
        has no answer.
    """

    plan: Plan
    identity: str
    rows: Mapping[str, Rows]
    letters: Rows
    answers: Mapping[str, Any] = field(default_factory=dict)


def application(tag: str, cases: Iterable[Case]) -> fk.App:
    """Return an application of all these cases."""
    app = fk.App(f"contract-{tag}", state_partitions=1)
    for case in cases:
        case.declare(app, lambda name: f"{name}-{tag}")
    return app


# -- in the kit -------------------------------------------------------------------------------------------------------


def in_kit(app: fk.App, cases: Collection[Case], *, crashes: bool = False) -> Found:
    """Run an application in the kit. Args: crashes: it crashes when half of its input is processed."""
    with run(app, at=NOW) as t:
        parts: list[Callable[[Any], Any]] = [lambda rows: rows]
        if crashes:
            parts = [lambda rows: rows[: len(rows) // 2], lambda rows: rows[len(rows) // 2 :]]
        for number, part in enumerate(parts):
            if number:
                t.crash()
            for case in cases:
                for source, rows in case.rows.items():
                    t.feed(case.fed(source, app), part(rows))
        t.checkpoint()
        found = {sink: t.read(sink) for sink in app.sinks}
        answers = _first(app, cases, found)
        return Found(plan=t._plan, identity=IDENTITY, rows=found, letters=t.dead_letters(), answers=answers)


def _first(app: fk.App, cases: Iterable[Case], found: Mapping[str, Rows]) -> dict[str, Any]:
    """Return the answer of each request: the first record with its id."""
    answers = {}
    for name, body in ((source, body) for case in cases for source in case.requests for body in case.rows[source]):
        rows = found[app.pushed[name].answers or ""]
        answers[body["id"]] = next((row for row in rows if row["id"] == body["id"]), None)
    return answers


# -- on a broker ------------------------------------------------------------------------------------------------------


def on_broker(app: fk.App, cases: Collection[Case], wire: Wire, home: Path) -> Found:
    """Run an application on a broker until all of its input is processed."""
    for case in cases:
        for source in case.rows.keys() - case.requests:
            topic = wire.topic(source, 1)
            wire.send(topic, case.rows[source])
    requests = {source: case.rows[source] for case in cases for source in case.requests}
    session, connection = application_session(app, None, 32), Connection.of(wire.bootstrap)
    opened = open_home(home, app.name, app.store)
    counts = KeptCounts(opened.path)
    made = assemble_host(
        app, connection, opened, lambda _: session, create_topics=True, is_once=True,
        launch=Launch(began_s=time.time()), failures=counts.failures, recorder=OFF, on_claim=lambda claim: None,
    )  # fmt: skip
    made.claim.await_former()
    with ThreadPoolExecutor() as clients, Gateway(app, connection, opened, lambda text: None) as gateway:
        gateway.update({"push": made.host.push()})
        asked = _ask_all(app, opened.path, clients, requests)
        _await_requests(made.plan, wire, requests, asked)
        query = Query(made.host, opened, counts, made.claim)
        try:
            wait_until(lambda: _is_over(query, gateway), TIMEOUT_S, lambda: f"the end: {query.status}")
        finally:
            query.stop()
        answers = {request: each.result(TIMEOUT_S) for request, each in asked.items()}
    letters = [row for topic in _letter_topics(made.plan) if wire.topics.exists(topic) for row in wire.rows(topic)]
    rows = {name: wire.rows(sink.to.topic) for name, sink in app.sinks.items() if isinstance(sink.to, fk.Kafka)}
    return Found(plan=made.plan, identity=opened.identity, rows=rows, letters=letters, answers=answers)


def _is_over(query: Query, gateway: Gateway) -> bool:
    if query.isActive:
        gateway.update({"push": query._host.push()})
    return query.awaitTermination(0.1)


def _letter_topics(plan: Plan) -> list[str]:
    found = [region.dead_letter_topic for region in plan.regions]
    return [str(topic) for topic in (*found, *(batch.dead_letter_topic for batch in plan.batches)) if topic]


def _ask_all(
    app: fk.App, home: Path, clients: ThreadPoolExecutor, requests: Mapping[str, Sequence[Any]]
) -> dict[str, "Future[Any]"]:
    """Post all requests at once; return the coming answers."""
    url = json.loads((home / "http.json").read_text())["url"] if requests else ""
    token = token_of(home, None)[0]
    return {
        row["id"]: clients.submit(_answer, f"{url}{app.pushed[source].path}", token, row)
        for source, rows in requests.items()
        for row in rows
    }


def _answer(url: str, token: str, row: Mapping[str, Any]) -> Any:
    """Post a request, again while requests are not accepted yet; return the answer. None: it has none."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    posted = urllib.request.Request(url, json.dumps(row).encode(), headers)
    found = list[bytes]()

    def is_answered() -> bool:
        try:
            with urllib.request.urlopen(posted, timeout=TIMEOUT_S) as response:
                found.append(response.read())
                assert (response.status == 204) == (found[0] == b"")
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        return bool(found)

    wait_until(is_answered, TIMEOUT_S, f"an answer to {row}")
    return json.loads(found[0]) if found[0] else None


def _await_requests(
    plan: Plan, wire: Wire, requests: Mapping[str, Sequence[Any]], asked: Mapping[str, "Future[Any]"]
) -> None:
    """Wait until all requests are in their topics, so that the run ends when they are processed."""

    def are_there() -> bool:
        for each in asked.values():
            if each.done():
                each.result()  # which fails if the request was refused
        return all(len(wire.rows(pushed.topic.topic)) >= len(requests[pushed.name]) for pushed in plan.push)

    wait_until(are_there, 60, "all requests in their topics")


# -- the comparison ---------------------------------------------------------------------------------------------------


def differences(app: fk.App, cases: Mapping[str, Case], kit: Found, broker: Found) -> dict[str, tuple[Any, Any]]:
    """Return what differs between two runs of an application: in the kit, and on the broker."""
    pairs = dict[str, tuple[Any, Any]]()
    letters = letters_of(kit), letters_of(broker)
    for name, case in cases.items():
        for sink, keys in case.keys.items():
            assert kit.rows[sink], f"{name}: {sink} has no results"
            pairs[sink] = ordered(kit.rows[sink], keys), ordered(broker.rows[sink], keys)
            pairs[f"promise of {sink}"] = promise(kit, sink), promise(broker, sink)
            unit = case.dead_letters or unit_of(kit.plan, app.sinks[sink].reads)
            assert letters[0][unit] or case.requests, f"{name}: all records fit"
            pairs[f"dead letters of {unit}"] = letters[0][unit], letters[1][unit]
        for request in (row["id"] for source in case.requests for row in case.rows[source]):
            pairs[f"answer to {request}"] = kit.answers[request], broker.answers[request]
    return {what: apart(*pair) for what, pair in pairs.items() if pair[0] != pair[1]}


def apart(kit: Any, broker: Any) -> Any:
    """Return the parts of two values that differ."""
    if isinstance(kit, Counter) and isinstance(broker, Counter):
        return sorted((kit - broker).elements()), sorted((broker - kit).elements())
    if isinstance(kit, dict) and isinstance(broker, dict):
        return {n: (kit.get(n), broker.get(n)) for n in kit | broker if kit.get(n) != broker.get(n)}
    return kit, broker


def unit_of(plan: Plan, processor: str) -> str:
    """Return the region or batch that runs a processor."""
    (region,) = [region.name for region in plan.regions if processor in region.processors] or [processor]
    return region


def letters_of(found: Found) -> defaultdict[str, Counter[str]]:
    """Return dead letters by the region or batch that could not use a record.

    The kit says nothing about `falkirk redrive`. A traceback has the lines of Falkirk above the user's.
    """
    units = defaultdict[str, Counter[str]](Counter)
    for letter in found.letters:
        own = {name: value for name, value in letter.items() if name != "resend"}
        if "traceback" in own:
            own["traceback"] = own["traceback"].splitlines()[-1]
        text = json.dumps(own, sort_keys=True)
        units[letter["region"]][text.replace(found.identity, IDENTITY)] += 1
    return units


def ordered(rows: Rows, keys: Sequence[str]) -> Any:
    """Return rows by their key, in their order. Without keys they have none."""
    if not keys:
        return unordered(rows)
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def unordered(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def promise(found: Found, sink: str) -> Any:
    """Return what the plan says about a sink. The names of some logs contain the identity of the home."""
    (promised,) = (each for each in promises_of(found.plan) if each.sink == sink)
    return json.loads(json.dumps(promised.as_json()).replace(found.identity, IDENTITY))


@pytest.fixture
def wire(spark: "SparkSession", broker: Broker, tag: str) -> Wire:
    """Topics of the test's own on the broker; there is a session."""
    return Wire(bootstrap=broker.bootstrap, tag=tag)


@pytest.mark.parametrize(
    ("names", "crashes"),
    [
        pytest.param(QUICK, False, id="some"),
        *(pytest.param(names, True, id=", ".join(names), marks=SOAK) for names in (OTHERS[:5], OTHERS[5:], NEWEST)),
    ],
)
def test_the_kit_gives_what_a_run_on_a_broker_gives(
    wire: Wire, home: Path, names: tuple[str, ...], crashes: bool
) -> None:
    cases = {name: CASES[name] for name in names}
    app = application(wire.tag, cases.values())
    kit = in_kit(app, cases.values(), crashes=crashes)
    found = on_broker(app, cases.values(), wire, home)
    assert differences(app, cases, kit, found) == {}
    if "dropDuplicates" in names:
        _assert_that_faults_of_the_kit_show(app, found)


def _assert_that_faults_of_the_kit_show(app: fk.App, found: Found) -> None:
    """See that the comparison finds kits that are wrong: one without a late record, and one without a result."""
    case, steps = {"dropDuplicates": CASES["dropDuplicates"]}, ChunkSteps.compute

    def without(is_lost: Callable[[RegionResult], bool]) -> Any:
        def compute(self: ChunkSteps, *given: Any) -> Any:
            results, state = steps(self, *given)
            lost = next(each for each in results if is_lost(each))
            return [each for each in results if each is not lost], state

        return compute

    for is_lost, part in (
        (lambda each: b'"late"' in (each.value or b""), "dead letters of firsts-out"),
        (lambda each: not each.is_dead, "firsts-out"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ChunkSteps, "compute", without(is_lost))
            wrong = in_kit(app, case.values())
        assert list(differences(app, case, wrong, found)) == [part]
