"""Asking: asks a store outside how far it is, and does not wait for an answer without a limit.

The thread that asks also watches the whole application, so a store that hangs must not hold it.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: A store says within this time which epochs it has, or counts as unreachable.
ANSWER_S = 5.0


class NoAnswer(Exception):
    """A store has not answered in time."""


class Asking(Generic[T]):
    """Asks one store.

    Args: name: of the sink. question: as the messages name it. answer: asks, and may hang. state: an answer that came
        too late answers the next question, if this returns the same as when it was asked. Otherwise nobody would ever
        get an answer of a store that always takes longer. None: no late answer counts.
    """

    def __init__(
        self, name: str, question: str, answer: Callable[[], T], state: Callable[[], object] | None = None
    ) -> None:
        self._name, self._question, self._answer, self._state = name, question, answer, state
        self._thread: threading.Thread | None = None
        self._late: tuple[object, list[T], list[Exception]] | None = None

    def ask(self) -> T:
        """Return the answer. Raises: NoAnswer. The error of the answer."""
        if self._thread is not None and self._thread.is_alive():
            raise NoAnswer(f"it has not answered {self._question} yet")
        late, self._late = self._late, None
        state = None if self._state is None else self._state()
        if late is not None and late[0] == state:
            return _one(late[1], late[2])
        answers: list[T] = []
        errors: list[Exception] = []

        def ask() -> None:
            try:
                answers.append(self._answer())
            except Exception as error:
                errors.append(error)

        self._thread = threading.Thread(target=ask, name=f"asks-{self._name}", daemon=True)
        self._thread.start()
        self._thread.join(ANSWER_S)
        if not (answers or errors):
            self._late = None if self._state is None else (state, answers, errors)
            raise NoAnswer(f"it has not answered {self._question} within {ANSWER_S:g} s")
        return _one(answers, errors)


def _one(answers: list[T], errors: list[Exception]) -> T:
    if errors:
        raise errors[0]
    return answers[0]
