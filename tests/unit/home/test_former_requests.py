"""Requests to a run of the application that has ended: the next run carries none of them out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.ownership.requests import stop_asked
from falkirk.runtime.supervision import coordinator as module
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import RunSettings


def before(store: Store) -> None:
    """Do what a start did before: answer one request to stop."""
    stop_asked(store)


@pytest.mark.parametrize("forgets", [True, False])
def test_a_new_run_carries_out_no_request_to_a_former_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Three commands asked the former run to stop at once, and one asked it to roll back when it died.

    Before, the next run ended at once, or took back what was published since somebody had asked for the rollback.
    """
    if not forgets:
        monkeypatch.setattr(module, "fail_former", before)
    app = fk.App("shop", kafka="127.0.0.1:1", home=home)
    with open_home(home, app.name) as opened:
        posted = [opened.store.post_request(kind, {}) for kind in ("stop", "rollback", "stop", "stop")]
    coordinator = Coordinator(app, RunSettings(file=Path(__file__)), say=lambda text: None)
    open_requests, states = list[bool](), list[str]()
    ask: Callable[[Any, str], bool] = Store.is_asked

    def run_host(opened: Any) -> str:
        open_requests.extend(ask(opened.store, kind) for kind in ("stop", "rollback"))
        states.extend(opened.store.request(number).state for number in posted)
        coordinator.stop()
        return "stopped"

    monkeypatch.setattr(coordinator, "_run_host", run_host)
    coordinator.run()
    assert open_requests == [not forgets, not forgets]
    assert states == (["failed"] * 4 if forgets else ["done", "open", "open", "open"])
