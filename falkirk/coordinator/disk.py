"""Disk: tells a full disk from a failure that would come again, whoever met it.

What meets one leaves things as they were and waits; all goes on once there is space.
"""

import errno

_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
#: What the operating system calls them, which is what Java hands on.
_TEXTS = ("No space left on device", "Disk quota exceeded")


def is_full(error: BaseException | None) -> bool:
    """Tell whether a full disk, or a full quota, is behind an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _ERRNOS:
            return True
        # PySpark keeps what Java says of the cause apart from the message.
        said = f"{error} {getattr(error, '_stackTrace', '')}"
        if any(text in said for text in _TEXTS):
            return True
        error = error.__cause__ or getattr(error, "_cause", None)
    return False
