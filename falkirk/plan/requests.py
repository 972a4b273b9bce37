"""Plans push sources: checks their schemas, and finds the sinks to which they lead and the topics of their answers."""

import copy
from dataclasses import dataclass, replace

from pyspark.sql.types import StringType, StructType

from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.http import Http, RequestTopic
from falkirk.declare.policy import Delivery
from falkirk.errors.conditions.plan import (
    ACKNOWLEDGED_UNDONE,
    ANSWERS_INVALID,
    ID_INVALID,
    SOURCE_UNREAD,
    TYPE_UNSUITABLE_REQUEST,
)
from falkirk.http_source.fits import unchecked_type
from falkirk.plan.batch import Batch
from falkirk.plan.region import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSource:
    """A planned push source.

    Args: name: the source's name. path: where clients post requests. topic: stores the requests. schema: the columns of
        a request. answers: the topic of answers, or None.
    """

    name: str
    path: str
    topic: RequestTopic
    schema: StructType
    answers: str | None

    def describe(self) -> dict[str, object]:
        """Return the source as plain values."""
        schema = self.schema.jsonValue()
        return {"source": self.name, "topic": self.topic.topic, "schema": schema, "answers": self.answers}


def bound(app: Application, identity: str) -> Application:
    """Return the application with the home's identity in the names of the topics of requests and clocks: two homes
    never share a topic.
    """
    found = copy.copy(app)
    declared = app.pushed | app.clocks
    topics = {name: source.topic(app.name, identity, name) for name, source in declared.items()}
    found.sources = app.sources | {name: replace(app.sources[name], topic=topic) for name, topic in topics.items()}
    return found


def plan_push(
    app: Application, identity: str, regions: tuple[Region, ...], batches: tuple[Batch, ...]
) -> tuple[PushSource, ...]:
    """Return the push sources of an application whose regions and batches are planned.

    Raises: DefinitionError: `SOURCE_UNREAD`, `ID_INVALID`, `TYPE_UNSUITABLE`, `ANSWERS_INVALID`. GuaranteeError:
        `ACKNOWLEDGED_UNDONE`.
    """
    found = []
    for name, http in app.pushed.items():
        topic = http.topic(app.name, identity, name)
        reached = _reached(topic.topic, regions, batches)
        if not reached:
            raise SOURCE_UNREAD.error(where=http.where, source=name)
        _refuse_skipping(app, name, http, reached)
        schema = StructType.fromDDL(http.schema)
        assert isinstance(schema, StructType), "the planner has parsed it"
        _check_schema(http, schema)
        answers = _answers(app, name, http, reached)
        found.append(PushSource(name=name, path=http.path, topic=topic, schema=schema, answers=answers))
    return tuple(found)


def _refuse_skipping(app: Application, name: str, http: Http, reached: set[str]) -> None:
    skipping = [s for s in reached if s in app.sinks and app.sinks[s].delivery is Delivery.AT_MOST_ONCE]
    if skipping:
        raise ACKNOWLEDGED_UNDONE.error(where=http.where, sink=skipping[0], name=name)


def _check_schema(http: Http, schema: StructType) -> None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if type(kinds.get(http.id)) is not StringType:
        raise ID_INVALID.error(where=http.where, id=http.id, http=http.path)
    if (kind := unchecked_type(schema)) is not None:
        raise TYPE_UNSUITABLE_REQUEST.error(where=http.where, type=kind.simpleString(), http=http.path)


def _reached(topic: str, regions: tuple[Region, ...], batches: tuple[Batch, ...]) -> set[str]:
    """Return the names of the sinks and logs to which the records of a topic lead."""
    logs, found = {topic}, set[str]()
    while True:
        next_regions = [r for r in regions if any(each.topic.topic in logs for each in r.sources)]
        next_batches = [b for b in batches if any(i.log in logs for i in b.inputs)]
        found = {r.name for r in next_regions} | {s.name for b in next_batches for s in b.sinks}
        more = {r.output.topic for r in next_regions} | {b.log for b in next_batches}
        if more <= logs:
            return found
        logs |= more


def _answers(app: Application, name: str, http: Http, reached: set[str]) -> str | None:
    if http.answers is None:
        return None
    sink = app.sinks.get(http.answers)
    if sink is None or not isinstance(sink.to, Kafka) or len(sink.to.keys) != 1 or sink.name not in reached:
        raise ANSWERS_INVALID.error(where=http.where, source=name, answers=http.answers)
    return sink.to.topic
