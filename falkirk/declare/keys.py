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


def key_text(columns: tuple[str, ...]) -> str:
    """Return the key columns of a target as text, as a home records them."""
    return f"key {', '.join(columns)}" if columns else "no key"
