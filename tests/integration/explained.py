"""`falkirk why` on results of a live region that has run, computed again."""

import io
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import falkirk as fk
from falkirk.checker import TopicRecord
from falkirk.kafka_client.connection import Connection
from falkirk.plan.shape import read_shape
from falkirk.platform.terminal import Terminal
from falkirk.runtime.spark.context import Storage
from falkirk.theory.ids import LogId, Offset
from falkirk.user_tools.commands.made_of import MadeOf
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.records import RecordPlace, TopicRecords
from falkirk.user_tools.commands.running import home_to_read
from falkirk.user_tools.commands.why import origin_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def explained(
    app: fk.App,
    bootstrap: str,
    spark: "SparkSession",
    topic: str,
    results: Iterable[TopicRecord],
    *,
    look: int = 10_000,
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], str]]:
    """Yield results with the values of the records that made each, the whole answer about them, and its text.

    Each result was computed again from these records, and was the same.
    """
    with home_to_read(app, None) as (home, _):
        shape, place = read_shape(home.path), Storage(home=home, connection=Connection.of(bootstrap))
        assert shape is not None
        records = TopicRecords(place)
        made_of = MadeOf(app, place, records, look=look, session=lambda: spark)
        for result in results:
            at = RecordPlace(topic=LogId(topic), partition=result.partition, offset=Offset(result.offset))
            found = Origins(app, shape, place, records, limit=1_000, look=look, made_of=made_of).explain(at)
            origin, out = found["origin"], io.StringIO()
            Terminal(file=out, width=160).print(origin_tree(found, 160), soft_wrap=True)
            assert origin["not_recomputed"] == ""
            made = origin["made_of"]
            assert made["agrees"], (found["record"], made)
            rows = [json.loads(each["record"]["value"]) for each in made["records"]]
            yield json.loads(result.value or b""), rows, made, out.getvalue()
