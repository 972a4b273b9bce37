"""Defines the error that a client gets instead of a result."""

from falkirk.errors import FalkirkError


class RequestError(FalkirkError):
    """A request has no result, or none yet.

    Args: status: the status of the HTTP response. retry_after_s: when the client may retry with the same id; None: a
        retry would fail in the same way.
    """

    def __init__(
        self, condition: str, message: str, *, status: int, retry_after_s: int | None = None, hint: str = ""
    ) -> None:
        self.status, self.retry_after_s = status, retry_after_s
        super().__init__(condition, message, hint=hint)


def passing_error(condition: str, message: str, *, status: int = 503, retry_after_s: int = 1) -> RequestError:
    """Return the error of a request that the client may retry. However often it retries, the request runs once."""
    return RequestError(
        condition, message, status=status, retry_after_s=retry_after_s, hint="Retry with the same Request-Id."
    )
