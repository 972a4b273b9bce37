"""The error of a request: what its client gets in place of a result."""

from falkirk.errors import FalkirkError


class RequestError(FalkirkError):
    """A request has no result, or none yet.

    Args: status: of the HTTP response. retry_after_s: when it may be asked again, with the same id; None: it would end
        alike.
    """

    def __init__(
        self, condition: str, message: str, *, status: int, retry_after_s: int | None = None, hint: str = ""
    ) -> None:
        self.status, self.retry_after_s = status, retry_after_s
        super().__init__(condition, message, hint=hint)


def passing_error(condition: str, message: str, *, status: int = 503, retry_after_s: int = 1) -> RequestError:
    """Return the error of a request that may be asked again: it runs once, however often that is done."""
    return RequestError(
        condition, message, status=status, retry_after_s=retry_after_s, hint="Ask again with the same Request-Id."
    )
