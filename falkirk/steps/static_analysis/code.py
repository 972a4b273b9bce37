"""Code: computes the digest of a Python function. It is the same in every process, and changes if the function, or
anything that it uses, changes.

It is like a pickle by value, without the parts that make pickles differ. Each object is divided into parts as `pickle`
does, sets are sorted, and line numbers, file names and earlier pickles are left out. The user's modules count by their
content, and installed ones by name and version (`owned.py`).

A value without parts, such as an open file or a generator, is refused, because it can't be compared at the next start.
"""

import copyreg
import functools
import json
import linecache
import threading
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, EnumMeta
from hashlib import sha256
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from falkirk.declare.asserting import ASSERTION_ATTRIBUTE
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.static_analysis import FUNCTION_UNREADABLE_VALUE
from falkirk.errors.location import SourceLocation
from falkirk.steps.static_analysis.mentions import MentionedNames, globals_of, imports_of
from falkirk.steps.static_analysis.owned import PYTHON_VERSION, installed, module_code, qualified_name

_PLAIN = (type(None), type(...), type(NotImplemented), bool, float, complex, str)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
#: The attributes of a class that do not influence its behaviour.
_OF_CLASSES = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__annotate__",
    "__annotations_cache__", "__annotate_func__", "__firstlineno__", "__static_attributes__", "_abc_impl",
}  # fmt: skip
_METHODS = (FunctionType, property, staticmethod, classmethod)


def function_digest(function: Any) -> str:
    """Return a digest of a function and everything that it uses.

    Raises: DefinitionError: `FUNCTION_UNREADABLE`: it uses a value that can't be compared at the next start.
    """
    try:
        return _Reader().whole(function)
    except _Unreadable as error:
        raise _refused(error, function) from error.__cause__


class _Unreadable(Exception):
    """A value that can't be divided into parts.

    Attributes: kind: its type. path: the names that lead to it. codes: the code of the functions that use it.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind, self.path, self.codes = kind, list[str](), list[CodeType]()


def _refused(error: _Unreadable, function: Any) -> DefinitionError:
    name, where = str(getattr(function, "__name__", type(function).__name__)), None
    if error.codes:
        file, line = error.codes[0].co_filename, error.codes[0].co_firstlineno
        where = SourceLocation(file=file, line=line, text=linecache.getline(file, line).strip())
    used = ".".join(error.path) or name
    return FUNCTION_UNREADABLE_VALUE.error(where=where, function=name, name=used, kind=error.kind)


@dataclass(frozen=True, slots=True)
class _Of:
    """Asks for the digest of a value, which is sent to the generator that asks."""

    value: Any


_Parts = Generator[str | _Of, Any, None]
"""The texts of which a digest is made."""


@dataclass(slots=True)
class _Frame:
    """A digest that is being computed. Args: value: None: of no single value. texts: the parts so far."""

    value: Any
    parts: _Parts
    texts: list[str] = field(default_factory=list)


class _Reader:
    """Computes digests of values. A digest depends only on the value, not on whether equal values are shared.

    Values are visited without recursion, because functions that use each other may form a chain of any length, and
    Python limits calls within calls.
    """

    def __init__(self) -> None:
        #: The digests by identity, with the values, because Python reuses the identity of a deleted object.
        self._done: dict[int, tuple[str, Any]] = {}
        self._open: dict[int, int] = {}
        self._mentions = MentionedNames()
        self._modules: dict[str, ModuleType] = {}

    def whole(self, function: Any) -> str:
        """Return the digest of a function and of everything that it uses. Raises: _Unreadable."""

        def parts() -> _Parts:
            yield PYTHON_VERSION
            yield from _each([function])
            yield from self._used_of_modules()

        frames = [_Frame(None, parts())]
        sent: str | None = None
        error: _Unreadable | None = None
        while True:
            frame = frames[-1]
            try:
                asked = frame.parts.send(sent) if error is None else frame.parts.throw(error)
            except StopIteration:
                sent, error = self._end(frames.pop()), None
                if not frames:
                    return sent
                continue
            except _Unreadable as raised:  # those who asked may note where
                sent, error = None, raised
                frames.pop()
                if not frames:
                    raise
                continue
            sent = error = None
            if isinstance(asked, str):
                frame.texts.append(asked)
            elif (sent := self._known(asked.value)) is None:
                frames.append(self._begin(asked.value))

    def _known(self, value: Any) -> str | None:
        """Return the digest of a value that has no parts, or whose parts were visited before."""
        kind = type(value)
        if kind in _PLAIN:
            return _digest([kind.__name__, repr(value)])
        if kind is int:
            return _digest(["int", f"{value:x}"])  # Python refuses to write long numbers in decimal digits
        if kind in (bytes, bytearray):
            return _digest([kind.__name__, value.hex()])
        if id(value) in self._done:
            return self._done[id(value)][0]
        if id(value) in self._open:  # it contains itself
            return f"up {len(self._open) - self._open[id(value)]}"
        return None

    def _begin(self, value: Any) -> _Frame:
        self._open[id(value)] = len(self._open)
        return _Frame(value, self._parts(value))

    def _end(self, frame: _Frame) -> str:
        found = _digest(frame.texts)
        self._open.pop(id(frame.value), None)
        self._done[id(frame.value)] = found, frame.value
        return found

    def _used_of_modules(self) -> _Parts:
        """Yield the used content of the user's modules that were reached.

        From each module, this is every value whose name some code mentions. If code computes names, it is the whole
        source.
        """
        done = set[tuple[str, str]]()
        while True:
            todo = {
                (module, name)
                for module, holder in self._modules.items()
                for name in self._mentions.names & vars(holder).keys()
            }
            todo |= {(module, "") for module in self._modules if self._mentions.computes_names}
            if todo <= done:
                return
            for module, name in sorted(todo - done):
                holder = self._modules[module]
                yield from (module, name)
                yield from _named({name: vars(holder)[name]}) if name else self._source(holder)
            done |= todo

    def _source(self, module: ModuleType) -> _Parts:
        source = module_code(module)
        if source is None:
            yield from _named({n: v for n, v in vars(module).items() if not n.startswith("__")})
        else:
            yield from _each([source])

    def _parts(self, value: Any) -> _Parts:
        kind = type(value)
        if isinstance(value, ModuleType):
            yield from self._module(value)
        elif (found := qualified_name(value)) is not None:
            yield from ("named", *found)
        elif isinstance(value, CodeType):
            yield from self._code(value)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, Enum):
            yield from ("member", str(value._name_))
            yield from _each([kind, value._value_])
        elif kind in (tuple, list):
            yield kind.__name__
            yield from _each(value)
        elif isinstance(value, set | frozenset):  # its order differs per process
            yield "set"
            yield from _each([kind])
            digests = list[str]()
            for part in value:
                digests.append((yield _Of(part)))
            yield from sorted(digests)
            yield from _named(getattr(value, "__dict__", {}))
        elif kind in (dict, MappingProxyType):
            yield "dict"
            yield from _each(part for pair in value.items() for part in pair)
        else:
            yield from self._wrapper(value)

    def _wrapper(self, value: Any) -> _Parts:
        """Yield the parts of a value that wraps others, or that has any other type."""
        inner: tuple[Any, ...]
        if isinstance(value, MethodType):
            inner = (value.__func__, value.__self__)
        elif isinstance(value, BuiltinFunctionType):
            inner = (value.__name__, value.__self__)
        elif isinstance(value, staticmethod | classmethod):
            inner = (value.__func__,)
        elif isinstance(value, property):
            inner = (value.fget, value.fset, value.fdel)
        elif isinstance(value, functools.cached_property):
            inner = (value.func,)
        elif isinstance(value, functools._lru_cache_wrapper):
            inner = (value.__wrapped__, value.cache_parameters())
        elif isinstance(value, functools.partial):
            inner = (value.func, value.args, value.keywords, vars(value))
        elif isinstance(value, MemberDescriptorType | GetSetDescriptorType):
            inner = (value.__name__,)
        elif isinstance(value, _LOCKS):
            inner = ()
        else:
            yield from self._object(value)
            return
        yield type(value).__name__
        yield from _each(inner)

    def _module(self, module: ModuleType) -> _Parts:
        version = installed(module.__name__)
        yield from ("module", module.__name__, version or "")
        if version is None:
            self._modules[module.__name__] = module
            if isinstance(compiled := module_code(module), str):
                yield compiled

    def _code(self, code: CodeType) -> _Parts:
        self._mentions.add(code)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        yield from ("code", code.co_code.hex(), code.co_exceptiontable.hex(), repr(counts))
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
        yield from _each([code.co_consts])

    def _function(self, function: FunctionType) -> _Parts:
        code, space = function.__code__, function.__globals__
        module = str(space.get("__name__"))
        attributes = {name: value for name, value in vars(function).items() if name != ASSERTION_ATTRIBUTE}
        try:
            if module == "functools" and "registry" in attributes:  # its closure has caches
                yield "dispatch"
                yield from _each([attributes["registry"]])
                return
            yield "function"
            yield from _each([code, function.__defaults__, function.__kwdefaults__])
            cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
            yield from _named({name: cell.cell_contents for name, cell in cells if _is_filled(cell)})
            yield from _named(attributes)
            if (version := installed(module)) is not None:  # a library made it; its version stands for its names
                yield from (module, version)
                return
            yield from _named({name: space[name] for name in globals_of(code) if name in space})
            for name, imported in sorted(imports_of(code, space).items()):
                yield from _named({name: imported}) if imported is not None else (name, "missing")
        except _Unreadable as error:
            error.codes.append(code)
            raise

    def _class(self, kind: type) -> _Parts:
        yield from ("class", kind.__name__)
        yield from _each([type(kind), *kind.__bases__])
        held = {name: value for name, value in vars(kind).items() if name not in _OF_CLASSES}
        if isinstance(kind, EnumMeta):
            members: Mapping[str, Any] = kind.__members__
            for name, member in members.items():
                yield name
                yield from _each([member._value_])
            held = {name: value for name, value in held.items() if isinstance(value, _METHODS)}
        yield from _named(held)

    def _object(self, value: Any) -> _Parts:
        """Yield the parts from which `pickle` would restore the value."""
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            found: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception as error:  # a class that can't be pickled may raise any error
            raise _Unreadable(f"{type(value).__module__}.{type(value).__qualname__}") from error
        if isinstance(found, str):
            module = str(getattr(value, "__module__", None))
            yield from ("named", module, found, installed(module) or "")
            return
        make, arguments, state, items, pairs = [*found, None, None, None][:5]
        yield "object"
        yield from _each([make, arguments])
        yield from self._state(state)
        yield from _each(items or ())
        yield from _each(part for pair in pairs or () for part in pair)

    def _state(self, state: Any) -> _Parts:
        """Yield the parts of an object's state. Its attributes have no order."""
        if type(state) is dict and all(type(name) is str for name in state):
            yield from _named(state)
        elif type(state) is tuple and all(isinstance(part, dict | None) for part in state):
            for part in state:
                yield from self._state(part)
        else:
            yield from _each([state])


def _each(values: Iterable[Any]) -> _Parts:
    """Yield the digests of values."""
    for value in values:
        yield (yield _Of(value))


def _named(values: Mapping[str, Any]) -> _Parts:
    """Yield names, each with the digest of its value. The order does not matter."""
    for name in sorted(values):
        yield name
        try:
            yield (yield _Of(values[name]))
        except _Unreadable as error:
            error.path.insert(0, name)
            raise


def _digest(parts: Iterable[str]) -> str:
    return sha256(json.dumps([*parts]).encode()).hexdigest()


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # the name is not assigned yet
        return False
