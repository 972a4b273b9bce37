"""Stored: JSON of a file, a topic or a database, which may be damaged, or which somebody else may have written."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value that a text holds.

    Raises: ValueError: it is no JSON, no text, or nested more deeply than Python reads: that is no error of `json`'s.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
