"""Record keys: compares the key of a topic's record with the one that its row should have.

A record with a wrong key is in a wrong partition, and compaction would drop a wrong record. Its row is marked with an
additional field, so that no input explains it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from falkirk.checker.content import content
from falkirk.checker.run import Values
from falkirk.checker.written import NO_OBJECT, read_json

#: The name of the field of a row whose record has a wrong key. The field's value is the key that was found.
WRONG_KEY = "(record key)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKeys:
    """The keys that records should have.

    Args: columns: whose values are the key: of one column the text of the value, or its JSON; of several columns a JSON
        object. model: the user's model, which may have a method `record_key(output)` that returns bytes or None.
    """

    columns: Sequence[str] = ()
    model: Any = None

    def marked(self, values: Values, key: bytes | None) -> Values:
        """Return a row of a topic, marked if its record's key is wrong."""
        if NO_OBJECT in values or self._is_right(values, key):
            return values
        return {**values, WRONG_KEY: "(null)" if key is None else key.decode("utf-8", "backslashreplace")}

    def _is_right(self, values: Values, key: bytes | None) -> bool:
        if not self.columns:
            expected: bytes | None = self.model.record_key(values)
            return key == expected
        if len(self.columns) > 1:
            return key is not None and content(read_json(key)) == content({c: values.get(c) for c in self.columns})
        value = values.get(self.columns[0])
        if key is None or value is None:
            return key is None and value is None
        if isinstance(value, str) and key == value.encode():
            return True
        return _is_json(key) and content(read_json(b'{"it": %s}' % key)) == content({"it": value})


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def record_keys_of(columns: Sequence[str], model: Any) -> RecordKeys | None:
    """Return the keys that the user's columns or model give, or None if they give none."""
    if not columns and not hasattr(model, "record_key"):
        return None
    return RecordKeys(columns=tuple(columns), model=model)
