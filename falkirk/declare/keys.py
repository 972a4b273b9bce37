"""Keys: the columns of a key, as users name them: one name, or several."""

from collections.abc import Sequence


def key_columns(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of a key. None: there is no key.

    >>> key_columns("user"), key_columns(["user", "page"]), key_columns(None)
    (('user',), ('user', 'page'), ())
    """
    if key is None:
        return ()
    return (key,) if isinstance(key, str) else tuple(key)
