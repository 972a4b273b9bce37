"""Stored: parses JSON from a file, topic or database, which may be damaged or written by others."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises: ValueError: the text is not JSON, not valid UTF-8, or too deeply nested for Python; `json` itself raises
        another error for the last.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
