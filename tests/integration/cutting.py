"""Running an application until one of its calls, which then is the last one."""

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import InternalError
from falkirk.kafka_client.connection import Connection
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.support import wait_until

Place = tuple[type, str, bool]
"""A class, its method, and whether the process ends before or after the call."""


def cut_off_at(place: Place, patch: pytest.MonkeyPatch) -> None:
    """Make the next call of a place the last thing that happens."""
    owner, name, behind = place
    real = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if behind:
            real(*arguments, **options)
        raise InternalError("CUT_OFF", name)

    patch.setattr(owner, name, call)


def run_until_cut_off(
    app: fk.App, broker: Broker, place: Place | None, work: Callable[[], None], is_done: Callable[[Query], bool]
) -> None:
    """Run an application, with work to do, until it is interrupted at a place, or without a place until it is done."""
    with pytest.MonkeyPatch.context() as patch:
        query = run_here(app, Connection.of(broker.bootstrap))
        if place is not None:
            cut_off_at(place, patch)
        work()
        try:
            wait_until(lambda: is_done(query) if place is None else not query.isActive, 120, f"{place}: {query.status}")
        finally:
            query.stop()
        error = query.exception()
        assert place is None or (isinstance(error, InternalError) and error.condition == "CUT_OFF"), error
