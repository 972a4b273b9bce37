"""Lanes: transactional ids by which the broker itself refuses the writers of former incarnations of a region.

A transactional region has one lane for each task of its query. The task's producer sends in short transactions with
the lane's id. They only fence: a transaction has no relation to a checkpoint, because the barrier drops repeated
results anyway.

The ids are the same in every incarnation. A gate, one more id per region, tells which incarnation is current: each
start takes it, and the broker then keeps a new epoch for it. The fence of a start:
  1. take the gate. Its producer id and epoch are the token of the new incarnation;
  2. take each lane. The broker aborts the open transaction of a former writer, and refuses its later records;
  3. read the ends and the tail of the outputs, committed records only.
A task that opens a lane calls `initTransactions`, and then checks the gate's token before it sends (Lane.java). An old
task that opens a lane after step 2 finds another token and sends nothing. If it opened the lane before, step 2 fences
it.
"""

from typing import Any

from py4j.protocol import Py4JError

from falkirk.errors import LogError
from falkirk.errors.conditions.spark import GATE_CONTENDED
from falkirk.errors.spark import first_line
from falkirk.kafka_client.fencing import TRANSACTION_TIMEOUT_S, take_ids
from falkirk.kafka_client.header import HEADER_KEY
from falkirk.kafka_client.internal import internal_topic
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.context import Context, Storage
from falkirk.theory.ids import Incarnation, Offset

#: The kind of decision with the number of lanes of an incarnation of a transactional region.
LANES = "lanes"
#: A transaction ends when its first record is this old, in milliseconds.
COMMIT_MS = 5
#: The same, of a job.
JOB_COMMIT_MS = 100
#: The Java class with which a job writes in lanes.
JOB = "org.falkirk.LaneSink"
#: The options of a transactional lane's producer.
_TRANSACTIONAL = {
    "transaction.timeout.ms": str(round(TRANSACTION_TIMEOUT_S * 1000)),
    "retry.backoff.ms": "1",  # the broker may still end the last transaction when the next one begins
}
#: How often to take the gate again if another process takes it at the same time.
_TRIES = 5


def has_lanes(place: Storage, region: str) -> bool:
    """Return whether an incarnation of a region may have written in lanes."""
    return place.home.store.newest_decision(LANES, region) is not None


def of_letters(region: str) -> str:
    """Return the name of the separate lanes for the dead letters of a region: see region_lanes.py."""
    return f"letters:{region}"


def of_jobs(topic: str) -> str:
    """Return the name under which the jobs that write a topic have their lanes. No region has such a name."""
    return f"release:{topic}"


def fenced_incarnations(store: Store, region: str) -> frozenset[Incarnation]:
    """Return the incarnations of a region that may have written in lanes."""
    return frozenset(Incarnation(decision.number) for decision in store.decisions(LANES, region))


def record(place: Storage, region: str, incarnation: Incarnation, lanes: int) -> None:
    """Record that an incarnation writes in lanes, and their number, before it opens one.

    Incarnations of jobs have no number that lasts. Instead of it they give the number of lanes.
    """
    place.home.store.record_decision(LANES, region, incarnation, {"lanes": lanes})


def fence(place: Storage, region: str, lanes: int = 0) -> None:
    """Fence all former writers of a region that does not run. Raises: LogError.

    Args: lanes: their least number, if it is known. A copy of a home may lack the record of the last incarnation.
    """
    if has_lanes(place, region):
        take_ids(place.connection, [_gate(place, region)])
        _take_lanes(place, region, lanes)


def fence_for(context: Context, region: str, lanes: int) -> str:
    """Fence all former writers of a region, and return the token of its next incarnation.

    Args: lanes: as of `fence`. Raises: LogError: `ACCESS_REFUSED`, `BROKER_AWAY` (maybe), `KAFKA_REFUSED`.
    """
    try:
        gate = _jvm(context).org.falkirk.Gate(_properties(context, context.kafka_options()), _gate(context, region))
        try:
            token = _taken(context, region, gate)
        finally:
            gate.close()
    except Py4JError as error:
        reason = first_line(error)
        refused = "Authorization" in reason
        raise LogError(
            "ACCESS_REFUSED" if refused else "BROKER_AWAY",
            f"Kafka did not return the epoch of a transactional id: {reason}.",
            certainty="definitely" if refused else "maybe",
            where=context.connection.bootstrap,
            hint="Check that Kafka is running, and that its user may describe transactional ids falkirk.*.",
        ) from error
    _take_lanes(context, region, lanes)
    return token


def _taken(context: Context, region: str, gate: Any) -> str:
    """Take the gate, and return its token.

    The client does not return the epoch that it was given. If the epoch rose by exactly 1, or began at 0, no other
    process took the gate meanwhile, and the token is this process's own. After 32,767 starts the broker gives the gate
    a new producer id. Then the second try succeeds.
    """
    for _ in range(_TRIES):
        before = str(gate.token())
        take_ids(context.connection, [_gate(context, region)])
        token = str(gate.token())
        if token == _next(before) or (not before and token.endswith("/0")):
            return token
    raise GATE_CONTENDED.error(where=region, region=region)


def _next(token: str) -> str | None:
    if not token:
        return None
    producer, epoch = token.split("/")
    return f"{producer}/{int(epoch) + 1}"


def _take_lanes(place: Storage, region: str, lanes: int) -> None:
    count = max([lanes, *(int(decided.content["lanes"]) for decided in place.home.store.decisions(LANES, region))])
    take_ids(place.connection, [f"{_prefix(place, region)}{n}" for n in range(count)])


def _gate(place: Storage, region: str) -> str:
    return f"{internal_topic(place.home.application, place.home.identity, region)}.gate"


def _prefix(place: Storage, region: str) -> str:
    return f"{internal_topic(place.home.application, place.home.identity, region)}.lane-"


def writer(
    context: Context, region: str, incarnation: Incarnation, lanes: int, options: dict[str, str], token: str | None
) -> Any:
    """Return the JVM's writer of a region's rows. Args: options: of the producers. token: None: not transactional."""
    properties = _properties(context, options if token is None else {**options, **_TRANSACTIONAL})
    made = _jvm(context).org.falkirk.KafkaWriter(
        lanes_key(context.home.identity, region), incarnation, lanes, HEADER_KEY, properties
    )
    if token is None:
        return made
    return made.fenced(_prefix(context, region), _gate(context, region), token, COMMIT_MS)


def job_options(
    context: Context, region: str, incarnation: Incarnation, lanes: int, options: dict[str, str], token: str | None
) -> dict[str, str]:
    """Return the options of a job that writes in lanes with the format `JOB`, except its number. Args: as of `writer`.

    A task commits when it ends, so a transaction need not be short.
    """
    made = {
        "region": lanes_key(context.home.identity, region),
        "incarnation": str(incarnation),
        "lanes": str(lanes),
        "headerKey": HEADER_KEY,
        **options,
    }
    if token is None:
        return made
    ids = {"ids": _prefix(context, region), "gate": _gate(context, region)}
    transactional = {f"kafka.{name}": value for name, value in _TRANSACTIONAL.items()}
    return {**made, **transactional, **ids, "token": token, "commitMs": str(JOB_COMMIT_MS)}


def lanes_key(identity: str, region: str) -> str:
    """Return the name of a region of a home among all regions that a JVM may write for."""
    return f"{identity}-{region}"


def are_used(context: Context, region: str) -> bool:
    """Return whether a task of this JVM uses a lane of a region."""
    return bool(_jvm(context).org.falkirk.Lanes.inUse(lanes_key(context.home.identity, region)))


def sent_ends(context: Context, region: str) -> tuple[int, dict[tuple[int, int], Offset]]:
    """Return what the twins of a region have sent since its start, in its lanes and in those for its dead letters.

    Returns: the number of results that one of them dropped because the other had sent them; by (source, partition), the
        greatest offset of the records whose results were handed to a producer.
    """
    dropped, found = 0, dict[tuple[int, int], Offset]()
    for name in (region, of_letters(region)):
        answer = str(_jvm(context).org.falkirk.Lanes.reached(lanes_key(context.home.identity, name)))
        count, *numbers = map(int, answer.split())
        dropped += count
        for s, p, o in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            found[s, p] = max(Offset(o), found.get((s, p), Offset(o)))
    return dropped, found


def refuse_before(context: Context, region: str, incarnation: Incarnation) -> None:
    """Refuse tasks of older incarnations in this JVM. After that, `are_used` reports all that have a lane."""
    _jvm(context).org.falkirk.Lanes.refuseBefore(lanes_key(context.home.identity, region), incarnation)


def close_lanes(context: Context, region: str) -> None:
    """Send all records in the lanes of a region in this JVM, and close them. Blocks while the broker is unreachable."""
    _jvm(context).org.falkirk.Lanes.close(lanes_key(context.home.identity, region))


def _jvm(context: Context) -> Any:
    return context.session._jvm


def _properties(context: Context, options: dict[str, str]) -> Any:
    made = _jvm(context).java.util.Properties()
    for name, value in options.items():
        made.put(name.removeprefix("kafka."), value)
    return made
