"""States that expire and have timers in micro-batches: random epochs of random records, compared with a plain model.

Spark's part, which sorts the rows by key and brings the watermark at the end of the epoch, is plain Python here.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from falkirk.steps.batch.folding import StateRules, folding
from falkirk.steps.batch.python import KIND, LETTER_KIND, RESULT_KIND, STATE_KIND, RowCollector
from tests.duplicates import DELAY_S, HOSTILE, drawn
from tests.strategies import examples
from tests.timers import EXPIRES_S, Model, counted, letters, reminded, results

AGE, TIMER, END = "__falkirk_age", "__falkirk_timer", "__falkirk_end"
_AGE = pa.struct([("time", pa.int64()), ("source", pa.string()), ("partition", pa.int32()), ("watermark", pa.int64())])
_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([
    (KIND, pa.string()),
    (RESULT_KIND, pa.struct([("id", pa.string()),
                           *((n, pa.int32()) for n in ("n", "count", "fired")), ("timer", _TIME)])),
    (STATE_KIND, pa.struct([("id", pa.string()), ("count_", pa.int32()), ("fired", pa.int32()), (AGE, _AGE),
                       (TIMER, pa.int64())])),
    (LETTER_KIND, pa.struct([("key", pa.string()), ("value", pa.string())])),
])  # fmt: skip
GIVEN = pa.schema([
    ("key", pa.struct([("id", pa.string())])), ("order", pa.struct([("source", pa.string()), ("offset", pa.int64())])),
    ("state", pa.struct([("count_", pa.int32()), ("fired", pa.int32())])),
    ("row", pa.struct([("id", pa.string()), ("at", _TIME), ("n", pa.int32())])), (AGE, _AGE), (TIMER, pa.int64()),
    (END, pa.int64()),
])  # fmt: skip


def micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Epochs:
    """The epochs of one partition, with the states between them."""

    def __init__(self, expires_us: int | None) -> None:
        self.states: dict[str, dict[str, Any]] = {}
        self.found: Counter[Any] = Counter()
        self.letters: list[dict[str, Any]] = []
        self._greatest: datetime | None = None
        rules = StateRules(expires_us=expires_us, on_timer=reminded, zone="UTC")
        sender = partial(RowCollector, SCHEMA, "here", fails=False)
        self._work = folding(counted, ["id", "at", "n"], ["id"], ["count_", "fired"], rules, None, sender)

    def run(self, records: list[dict[str, Any]]) -> None:
        """Run an epoch."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for offset, record in enumerate(records):
            if record["at"] is None or record["at"] in HOSTILE:
                self.letters.append({"reason": "unfit", "value": f'{{"n": {record["n"]}}}'})
                continue
            time = datetime.fromisoformat(record["at"])
            self._greatest = time if self._greatest is None else max(self._greatest, time)
            watermark = micros(self._greatest) - DELAY_S * 1_000_000
            if record["n"] % 7 == 0:
                continue
            if micros(time) < watermark:
                self.letters.append({"reason": "late", "value": f'{{"n": {record["n"]}}}'})
                continue
            age = {"time": micros(time), "source": "clicks", "partition": 0, "watermark": watermark}
            row = {"row": {**record, "at": time}, "order": {"source": "clicks", "offset": offset}, AGE: age}
            rows.setdefault(record["id"], []).append({"key": {"id": record["id"]}, **row})
        end = None if self._greatest is None else micros(self._greatest) - DELAY_S * 1_000_000
        due = [key for key, state in self.states.items() if end is not None and (state[TIMER] or end + 1) <= end]
        given = [{**row, END: end} for key in sorted({*rows, *due}) for row in [*self._held(key), *rows.get(key, [])]]
        parts = [given[:3], given[3:]]  # a key may be in two parts
        for batch in self._work(pa.RecordBatch.from_pylist(part, schema=GIVEN) for part in parts):
            for row in batch.to_pylist():
                self._take(row[KIND], row[row[KIND]])

    def _held(self, key: str) -> Iterator[dict[str, Any]]:
        state = self.states.pop(key, None)
        if state is not None:
            shown = {name: state[name] for name in ("count_", "fired")}
            yield {"key": {"id": key}, "state": shown, AGE: state[AGE], TIMER: state[TIMER]}

    def _take(self, kind: str, value: dict[str, Any]) -> None:
        if kind == RESULT_KIND:
            timer = value["timer"] and value["timer"].isoformat()
            self.found += results([{**value, "timer": timer}])
        elif kind == STATE_KIND:
            self.states[value["id"]] = value
        else:
            self.letters.append(json.loads(value["value"]))


@pytest.mark.parametrize("fault", ["", "expiry"])
def test_epochs_of_any_size_give_the_results_of_the_model(fault: str) -> None:
    for seed in range(examples(20)):
        random, records = Random(seed), drawn(seed, 200, ids=6)
        model, found, said = Model(fault=fault).read(records), Counter[Any](), Counter[Any]()
        for mine in records.values():
            epochs, left = Epochs(None if fault else EXPIRES_S * 1_000_000), list(mine)
            while left:
                size = random.randrange(12)
                epochs.run(left[:size])
                del left[:size]
            found += epochs.found
            said += letters(epochs.letters)
        assert found == model.results, seed
        assert said == model.letters, seed
