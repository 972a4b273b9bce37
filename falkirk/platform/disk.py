"""Disk: distinguishes a full disk from other failures, which would recur on a retry.

Code that meets a full disk changes nothing and waits. It resumes once the disk has space.
"""

import errno

_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
#: The messages of the operating system, which Java passes on.
_TEXTS = ("No space left on device", "Disk quota exceeded")


def is_full(error: BaseException | None) -> bool:
    """Return whether a full disk, or a full quota, caused an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _ERRNOS:
            return True
        # PySpark keeps Java's description of the cause in another attribute than the message.
        said = f"{error} {getattr(error, '_stackTrace', '')}"
        if any(text in said for text in _TEXTS):
            return True
        error = error.__cause__ or getattr(error, "_cause", None)
    return False
