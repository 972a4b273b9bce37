"""Unknown methods: names what a stream can do instead of a DataFrame's method that it lacks."""

from typing import NoReturn

from falkirk.errors import DefinitionError
from falkirk.errors.location import caller

#: The attributes of a DataFrame that tell its columns.
_OF_COLUMNS = frozenset({"columns", "dtypes", "printSchema", "schema"})
#: The advice for steps that a stream has no method for.
_WAY_OUT = "For all of PySpark, write @app.stream(fk.Eager()) or @app.batch(…): their parameters are DataFrames."


class UnknownMethodError(DefinitionError, AttributeError):
    """A stream does not have this method. It is an AttributeError too, so that `hasattr` and `getattr` work."""


def refuse_method(name: str, what: str, kind: type) -> NoReturn:
    """Refuse a method of a DataFrame. Args: what: the object that lacks it, in words. kind: its class.

    Raises: DefinitionError: `UNSUPPORTED_METHOD`. AttributeError.
    """
    if name.startswith("_"):  # protocols of Python and notebooks, which expect an AttributeError
        raise AttributeError(name)
    known = sorted(m for m, value in vars(kind).items() if not m.startswith("_") and callable(value))
    message, hint = f"{what} has no method {name}().", f"Use one of {', '.join(known)}."
    if name in _OF_COLUMNS:
        message = f"{what} has no {name}: its columns are not known before Falkirk plans the application."
        hint = "Name the columns that you need. Those of a source are in its schema=."
    raise UnknownMethodError("UNSUPPORTED_METHOD", message, where=caller(), hint=f"{hint} {_WAY_OUT}", method=name)
