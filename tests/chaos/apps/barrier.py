"""The barrier of live regions, which an application under test may do without: BARRIER=off switches it off."""

import os
from dataclasses import replace
from typing import Any

from falkirk.runtime.spark.live import query, region


def off_if_asked() -> None:
    """With BARRIER=off, let a restarted region drop no result that is already published."""
    if os.environ.get("BARRIER") == "off":
        region.LiveQuery = _without_barrier  # type: ignore[assignment,misc]


def off_for(name: str) -> None:
    """Let one region, when it is restarted, drop no result that is already published."""

    def made(**options: Any) -> query.LiveQuery:
        return (_without_barrier if options["region"].name == name else query.LiveQuery)(**options)

    region.LiveQuery = made  # type: ignore[assignment,misc]


def _without_barrier(**options: Any) -> query.LiveQuery:
    found = query.LiveQuery(**options)
    return replace(found, release=replace(found.release, barrier=None))
