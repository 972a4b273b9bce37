"""Requests: how commands send requests to a running application, through the store of its home."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from falkirk.errors import StoreError
from falkirk.errors.conditions.home import REQUEST_REFUSED, REQUEST_UNANSWERED
from falkirk.store import Store
from falkirk.theory.ids import PointNumber

_POLL_S = 0.2
#: The longest wait for an answer: a stop flushes producers, and a rollback reads the results since the checkpoint.
PATIENCE_S = 180.0
_NOTHING = nullcontext()


def require_charge_if_reachable(store: Store) -> None:
    """Refuse an owner that was replaced; accept it while the store is unreachable. Raises: as `require_charge`."""
    try:
        store.require_charge()
    except StoreError as error:
        if error.condition != "STORE_AWAY":
            raise


def stop_asked_if_reachable(store: Store) -> bool:
    """Return, once, whether somebody asked the application to stop; False while the store is unreachable.

    Raises: StoreError: `HOME_TAKEN_OVER`: the application has another owner now; others except `STORE_AWAY`.
    """
    try:
        store.require_charge()
        return stop_asked(store)
    except StoreError as error:
        if error.condition != "STORE_AWAY":
            raise
        return False


def stop_asked(store: Store) -> bool:
    """Take and answer a request to stop, if there is one; return whether there was one."""
    request = store.take_request("stop")
    if request is not None:
        store.answer_request(request.request, {})
    return request is not None


def fail_former(store: Store) -> None:
    """Fail the requests to a former run of the application, of which there may be several. A new owner calls this.

    Raises: StoreError.
    """
    for kind in ("stop", "rollback"):
        reason = "the application ended before it answered; it may be done or not"
        store.fail_taken(kind, reason, also_open=True)


def ask_to_stop(store: Store) -> None:
    """Ask the running application to stop."""
    if not store.is_asked("stop"):
        store.post_request("stop", {})


def ask_for_rollback(
    store: Store,
    asked: Mapping[str, PointNumber],
    *,
    force: bool,
    timeout_s: float,
    using: AbstractContextManager[object] = _NOTHING,
) -> Mapping[str, PointNumber]:
    """Ask the running application to roll back, and wait for its answer; return the chosen checkpoint of each region.

    Args: using: entered for each use of the store, and left while this waits.
    Raises: HomeError: `REQUEST_REFUSED` with its answer; `REQUEST_UNANSWERED`: it may still carry out the request.
    """
    with using:
        number = store.post_request("rollback", {"asked": dict(asked), "force": force})
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with using:
            request = store.request(number)
        assert request is not None
        if request.state == "done":
            goes: Mapping[str, PointNumber] = request.answer["goes"]
            return goes
        if request.state == "failed":
            raise REQUEST_REFUSED.error(
                condition_answered=request.answer.get("condition"),
                reason=request.answer.get("text") or request.answer.get("reason"),
            )
        time.sleep(_POLL_S)
    raise REQUEST_UNANSWERED.error(request=number, timeout_s=timeout_s)
