"""Rollback requests: takes requests of commands to roll back, and answers each one once.

A request is carried out by a recovery that names it. So after any error, the store says whether it was carried out: its
answer never contradicts the regions.
"""

from collections.abc import Callable

from falkirk.errors import FalkirkError, GuaranteeError
from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.requests import asked_by
from falkirk.recovery.protocol.rollback import RollbackDecision


class RollbackRequests:
    """The requests to roll back the application of one host.

    Args: say: receives one line for the user about each request.
    """

    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store, self._say = store, say
        #: A request may be taken, and its answer not in the store.
        self._owes_answer = False

    def settle(self, reason: str = "the application ended before it was done") -> None:
        """Answer the requests that were taken: those that a recovery carries out are done, and the others failed."""
        self._store.fail_taken("rollback", reason)
        self._owes_answer = False

    def are_there(self) -> bool:
        """Return whether a request waits. First settle one that an error of the store left without an answer."""
        if self._owes_answer:
            self.settle("an error occurred before it was done")
        return self._store.is_asked("rollback")

    def answer(self, recover: Callable[..., RollbackDecision]) -> bool:
        """Take the oldest request, if there is one; return whether it was carried out.

        Args: recover: takes `asked`, `force` and the `reason` of the recovery.
        """
        self._owes_answer = True
        request = self._store.take_request("rollback")
        if request is None:
            self._owes_answer = False
            return False
        asked, force = request.arguments["asked"], request.arguments["force"]
        try:
            decision = recover(asked=asked, force=force, reason=asked_by(request.request))
        except FalkirkError as error:
            if not isinstance(error, GuaranteeError):  # the decision may be recorded, and is finished later
                self.settle(str(error))
                raise
            answer = {"condition": error.condition, "text": str(error)}
            self._store.answer_request(request.request, answer, failed=True)
            self._owes_answer = False
            self._say(f"rollback refused: {error.message}")
            return False
        self._store.answer_request(request.request, {"goes": dict(decision.goes)})
        self._owes_answer = False
        self._say(f"rolled back on request: {', '.join(f'{n} to {p}' for n, p in sorted(decision.goes.items()))}")
        return True
