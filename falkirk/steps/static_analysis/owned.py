"""Owned: distinguishes the user's modules, whose content counts, from installed ones, whose version counts."""

import sys
import sysconfig
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import CodeType
from typing import Any

#: Modules in these folders were installed.
_INSTALLED = {"site-packages", "dist-packages"}
#: Modules that Spark contains. If Spark was not installed by pip, they are archives in Spark's folder.
_OF_SPARK = {"pyspark": "pyspark", "py4j": "pyspark"}
#: The version for modules that Python contains.
PYTHON_VERSION = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def installed(module: str) -> str | None:
    """Return the name and version of the package of an installed module; None: it is one of the user's modules."""
    top = module.partition(".")[0]
    if top in sys.builtin_module_names:
        return PYTHON_VERSION
    if top in _OF_SPARK:
        return f"{top} {version_of(_OF_SPARK[top])}"
    if top == "falkirk":
        return f"falkirk {version_of('falkirk')}"
    origin = _origin(sys.modules.get(top))
    if origin is None:
        return None
    if origin == "frozen":
        return PYTHON_VERSION
    if _INSTALLED & set(Path(origin).parts):
        names = sorted(set(_distributions().get(top, ())))
        return ", ".join(f"{name} {version_of(name)}" for name in names) or None
    return PYTHON_VERSION if any(Path(origin).is_relative_to(folder) for folder in _library()) else None


@cache
def version_of(distribution: str) -> str:
    """Return the version of an installed distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def qualified_name(value: Any) -> tuple[str, str] | None:
    """Return the full name of this value in an installed module, and the module's version; None: it is in none."""
    try:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    except Exception:  # a class may raise any error for an attribute
        return None
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    given = installed(module) if found is value else None
    return None if given is None else (f"{module}.{name}", given)


def module_code(module: Any) -> CodeType | str | None:
    """Return the code of a whole module, or a digest of its file if it is a compiled extension; None: no source."""
    spec: Any = getattr(module, "__spec__", None)
    get_code = getattr(getattr(spec, "loader", None), "get_code", None)
    try:
        code = get_code(spec.name) if get_code is not None else None
    except (ImportError, OSError, SyntaxError):
        code = None
    if isinstance(code, CodeType):
        return code
    file = getattr(module, "__file__", None)
    try:
        return None if file is None else sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


def _origin(module: Any) -> str | None:
    spec = getattr(module, "__spec__", None)
    found = getattr(spec, "origin", None) or getattr(module, "__file__", None)
    if found is None and (places := list(getattr(module, "__path__", ()))):
        found = places[0]  # a package without a file
    return None if found is None else str(found)


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: list(found) for name, found in packages_distributions().items()}


@cache
def _library() -> tuple[str, ...]:
    return tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
