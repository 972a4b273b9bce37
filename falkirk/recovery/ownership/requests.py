"""Requests: how commands send requests to a running application, through the store of its home."""

import contextlib
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from falkirk.errors import StoreError
from falkirk.errors.conditions.ownership import REQUEST_REFUSED, REQUEST_UNANSWERED
from falkirk.platform.machine_time import MachineTime
from falkirk.recovery.decision_store import Store
from falkirk.theory.ids import CheckpointNumber

_POLL_S = 0.2
#: The longest wait for an answer: a stop flushes producers, and a rollback reads the results since the checkpoint.
PATIENCE_S = 180.0
_NOTHING = nullcontext()
#: A repeated request to roll back has these arguments in common with the first one. The checkpoints that a time or the
#: number of a cut stands for may differ, because the first request was carried out meanwhile.
_SAME = ("to", "force")


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
        reason = "the application ended before it was done"
        store.fail_taken(kind, reason, also_open=True)


def ask_to_stop(store: Store) -> None:
    """Ask the running application to stop."""
    if not store.is_asked("stop"):
        store.post_request("stop", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """A rollback that was carried out.

    Args: goes: the chosen checkpoint of each region. is_earlier: an earlier command asked for it, and did not see its
        answer. It was carried out before this command asked, so it was not carried out again.
    """

    goes: Mapping[str, CheckpointNumber]
    is_earlier: bool


def ask_for_rollback(
    store: Store,
    asked: Mapping[str, CheckpointNumber],
    *,
    force: bool,
    timeout_s: float,
    to: str | None = None,
    using: AbstractContextManager[object] = _NOTHING,
    clock: MachineTime = time,
) -> RolledBack:
    """Ask the running application to roll back, and wait for its answer.

    If the same rollback was asked for before, and nobody has seen an answer, this waits for the answer to that request.
    A lost answer of the store therefore never leads to a second rollback.

    Args: to: the text that names the target, by which a repeated request is recognized; None: that of `asked`. using:
        entered for each use of the store, and left while this waits. clock: measures the wait.
    Raises: HomeError: `REQUEST_REFUSED` with its answer; `REQUEST_UNANSWERED`: it may still carry out the request.
    """
    arguments = _rollback(asked, force=force, to=to)
    deadline = clock.monotonic() + timeout_s
    joined: tuple[int, bool] | None = None
    has_tried = False
    while joined is None:
        try:
            with using:
                number, is_earlier = store.join_request("rollback", arguments, _SAME)
            joined = number, is_earlier and not has_tried
        except StoreError as error:
            if error.certainty != "maybe" or clock.monotonic() >= deadline:
                raise
            has_tried = True
            clock.sleep(_POLL_S)
    number, is_earlier = joined
    while is_earlier or clock.monotonic() < deadline:
        with using:
            request = store.request(number)
        assert request is not None
        if request.state in ("done", "seen"):
            _see(store, number, using)
            return RolledBack(goes=request.answer["goes"], is_earlier=is_earlier)
        if request.state == "failed":
            raise REQUEST_REFUSED.error(
                condition_answered=request.answer.get("condition"),
                reason=request.answer.get("text") or request.answer.get("reason"),
            )
        clock.sleep(_POLL_S)
    raise REQUEST_UNANSWERED.error(request=number, timeout_s=timeout_s)


def is_rolled_back(store: Store, asked: Mapping[str, CheckpointNumber], *, force: bool, to: str | None = None) -> bool:
    """Return, once, whether an earlier command asked for this rollback, and did not see that it was carried out.

    Args: as of `ask_for_rollback`.
    """
    number = store.unseen_request("rollback", _rollback(asked, force=force, to=to), _SAME)
    if number is not None:
        store.note_seen(number)
    return number is not None


def _rollback(asked: Mapping[str, CheckpointNumber], *, force: bool, to: str | None) -> Mapping[str, object]:
    text = ", ".join(f"{name}@{number}" for name, number in sorted(asked.items())) if to is None else to
    return {"asked": dict(asked), "force": force, "to": text}


def _see(store: Store, number: int, using: AbstractContextManager[object]) -> None:
    with contextlib.suppress(StoreError), using:  # at worst, the next command says again that it is done
        store.note_seen(number)
