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
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
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

from falkirk.analysis.mentions import MentionedNames, globals_of, imports_of
from falkirk.analysis.owned import PYTHON_VERSION, installed, module_code, qualified_name
from falkirk.declare.asserting import ASSERTION_ATTRIBUTE
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.analysis import FUNCTION_UNREADABLE_VALUE
from falkirk.errors.location import SourceLocation

_PLAIN = (type(None), type(...), type(NotImplemented), bool, float, complex, str)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
#: The attributes of a class that do not influence its behaviour.
_OF_CLASSES = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__annotate__",
    "__annotations_cache__", "__annotate_func__", "__firstlineno__", "__static_attributes__", "_abc_impl",
}  # fmt: skip
#: The size of the stack on which digests are computed, and the number of nested calls for which it has room.
_STACK_BYTES, _FRAMES = 512 * 2**20, 50_000
_METHODS = (FunctionType, property, staticmethod, classmethod)


def function_digest(function: Any) -> str:
    """Return a digest of a function and everything that it uses.

    Raises: DefinitionError: `FUNCTION_UNREADABLE`: it uses a value that can't be compared at the next start.
    """
    reader = _Reader()
    try:
        return _deep(lambda: _digest([PYTHON_VERSION, reader.digest(function), *reader.modules()]))
    except _Unreadable as error:
        raise _refused(error, function) from error.__cause__
    except RecursionError as error:
        raise _refused(_Unreadable("a value that is nested too deeply"), function) from error


def _deep(compute: Callable[[], str]) -> str:
    """Call a function with room for deep recursion, because functions that use each other may form a long chain."""
    found: Future[str] = Future()

    def run() -> None:
        try:
            found.set_result(compute())
        except BaseException as error:  # `found.result()` raises it again
            found.set_exception(error)

    size, limit = threading.stack_size(_STACK_BYTES), sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(max(limit, _FRAMES))
        thread = threading.Thread(target=run, name="falkirk-digest")
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    return found.result()


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


class _Reader:
    """Computes digests of values. A digest depends only on the value, not on whether equal values are shared."""

    def __init__(self) -> None:
        #: The digests by identity, with the values, because Python reuses the identity of a deleted object.
        self._done: dict[int, tuple[str, Any]] = {}
        self._open: dict[int, int] = {}
        self._mentions = MentionedNames()
        self._modules: dict[str, ModuleType] = {}

    def digest(self, value: Any) -> str:
        """Return the digest of a value. Raises: _Unreadable."""
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
        self._open[id(value)] = len(self._open)
        try:
            found = _digest(self._parts(value))
        finally:
            del self._open[id(value)]
        self._done[id(value)] = found, value
        return found

    def modules(self) -> Iterator[str]:
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
                yield from self._named({name: vars(holder)[name]}) if name else self._source(holder)
            done |= todo

    def _source(self, module: ModuleType) -> Iterator[str]:
        source = module_code(module)
        if source is None:
            yield from self._named({n: v for n, v in vars(module).items() if not n.startswith("__")})
        else:
            yield self.digest(source)

    def _named(self, values: Mapping[str, Any]) -> Iterator[str]:
        for name in sorted(values):
            yield name
            try:
                yield self.digest(values[name])
            except _Unreadable as error:
                error.path.insert(0, name)
                raise

    def _parts(self, value: Any) -> Iterator[str]:
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
            yield from ("member", str(value._name_), self.digest(kind), self.digest(value._value_))
        elif kind in (tuple, list):
            yield from (kind.__name__, *map(self.digest, value))
        elif isinstance(value, set | frozenset):  # its order differs per process
            yield from ("set", self.digest(kind), *sorted(map(self.digest, value)))
            yield from self._named(getattr(value, "__dict__", {}))
        elif kind in (dict, MappingProxyType):
            yield from ("dict", *(self.digest(part) for pair in value.items() for part in pair))
        else:
            yield from self._wrapper(value)

    def _wrapper(self, value: Any) -> Iterator[str]:
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
        yield from (type(value).__name__, *map(self.digest, inner))

    def _module(self, module: ModuleType) -> Iterator[str]:
        version = installed(module.__name__)
        yield from ("module", module.__name__, version or "")
        if version is None:
            self._modules[module.__name__] = module
            if isinstance(compiled := module_code(module), str):
                yield compiled

    def _code(self, code: CodeType) -> Iterator[str]:
        self._mentions.add(code)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        yield from ("code", code.co_code.hex(), code.co_exceptiontable.hex(), repr(counts))
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
        yield self.digest(code.co_consts)

    def _function(self, function: FunctionType) -> Iterator[str]:
        code, space = function.__code__, function.__globals__
        module = str(space.get("__name__"))
        attributes = {name: value for name, value in vars(function).items() if name != ASSERTION_ATTRIBUTE}
        try:
            if module == "functools" and "registry" in attributes:  # its closure has caches
                yield from ("dispatch", self.digest(attributes["registry"]))
                return
            yield from ("function", *map(self.digest, (code, function.__defaults__, function.__kwdefaults__)))
            cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
            yield from self._named({name: cell.cell_contents for name, cell in cells if _is_filled(cell)})
            yield from self._named(attributes)
            if (version := installed(module)) is not None:  # a library made it; its version stands for its names
                yield from (module, version)
                return
            yield from self._named({name: space[name] for name in globals_of(code) if name in space})
            for name, imported in sorted(imports_of(code, space).items()):
                yield from (name, "missing" if imported is None else self.digest(imported))
        except _Unreadable as error:
            error.codes.append(code)
            raise

    def _class(self, kind: type) -> Iterator[str]:
        yield from ("class", kind.__name__, self.digest(type(kind)), *map(self.digest, kind.__bases__))
        held = {name: value for name, value in vars(kind).items() if name not in _OF_CLASSES}
        if isinstance(kind, EnumMeta):
            members: Mapping[str, Any] = kind.__members__
            yield from (part for name, member in members.items() for part in (name, self.digest(member._value_)))
            held = {name: value for name, value in held.items() if isinstance(value, _METHODS)}
        yield from self._named(held)

    def _object(self, value: Any) -> Iterator[str]:
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
        yield from ("object", self.digest(make), self.digest(arguments))
        yield from self._state(state)
        yield from map(self.digest, items or ())
        yield from (self.digest(part) for pair in pairs or () for part in pair)

    def _state(self, state: Any) -> Iterator[str]:
        """Yield the parts of an object's state. Its attributes have no order."""
        if type(state) is dict and all(type(name) is str for name in state):
            yield from self._named(state)
        elif type(state) is tuple and all(isinstance(part, dict | None) for part in state):
            for part in state:
                yield from self._state(part)
        else:
            yield self.digest(state)


def _digest(parts: Iterable[str]) -> str:
    return sha256(json.dumps([*parts]).encode()).hexdigest()


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # the name is not assigned yet
        return False
