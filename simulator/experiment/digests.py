"""Digests of experiments, by which a sweep recognises the results that it has.

A digest covers the release, the values of all fields with their classes, the contents of files, and
the code of user-defined classes with all functions and values that it refers to. Objects are
described by what `pickle` would keep of them. One that cannot be described, such as an open file,
gives another digest each time, so that its experiment is computed again. What code reads or imports
while it runs is not in the digest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Set
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np

from reshape import __version__
from simulator.experiment.experiment import PATHS, Experiment

#: Packages whose code the release determines.
_OWN = frozenset({"reshape", "redistribution", "scheduler", "simulator"})
_PLAIN = frozenset({str, int, float, complex, bool, bytes, range})
_CACHED = type(cache(len))  # of functools, which keeps the function in an attribute


def digest(experiment: Experiment) -> str:
    """Digest of all that determines the results of an experiment."""
    fields = {name: getattr(experiment, name) for name in experiment.__struct_fields__}
    jobs = fields.pop("jobs")
    whole = [__version__, fields, jobs.fields, jobs.table, experiment.described]
    if experiment.centres is None:
        whole.append(experiment.chosen)
    else:
        whole += [experiment.assignment, *(centre.chosen for centre in experiment.centres)]
    contents = [*input_files(experiment).values()]
    try:
        described = _Description().of(whole)
    except RecursionError:
        described = uuid4().hex
    return sha256(json.dumps([described, contents], sort_keys=True).encode()).hexdigest()


def input_files(experiment: Experiment) -> dict[str, str]:
    """Digest of the contents of each file that an experiment names, by path."""
    fields = experiment.jobs.fields
    named = [fields.trace, fields.workload, *(getattr(experiment, name) for name in PATHS)]
    return {str(path): content(str(path)) for path in named if isinstance(path, str | Path)}


class _Description:
    """Plain data that stands for values, with the code of their classes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, object]] = {}
        self._entered: set[int] = set()  # modules of which values are being described

    def of(self, value: Any) -> Any:
        """Plain data of a value."""
        kind = type(value)
        if value is None or kind in _PLAIN or isinstance(value, np.generic):
            return repr(value)
        if isinstance(value, Path):
            return [repr(value), content(str(value))]
        if isinstance(value, np.ndarray):
            data = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
            return [str(value.dtype), value.shape, sha256(data).hexdigest()]
        if kind in (dict, MappingProxyType):
            return [[self.of(key), self.of(item)] for key, item in value.items()]
        if kind in (list, tuple):
            return [self.of(item) for item in value]
        if kind in (set, frozenset):
            return sorted(repr(self.of(item)) for item in value)
        if id(value) in self._known:
            return f"value {self._known[id(value)][0]}"
        self._known[id(value)] = len(self._known), value
        return self._object(value)

    def _object(self, value: object) -> Any:
        """Plain data of a value that is described for the first time."""
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, ModuleType):
            return self._module(value.__name__)
        if isinstance(value, staticmethod | classmethod):
            return self.of(value.__func__)
        if isinstance(value, MethodType):
            return self.of([value.__func__, value.__self__])
        if isinstance(value, property):
            return self.of([value.fget, value.fset])
        if isinstance(value, cached_property):
            return self.of(value.func)
        return [self.of(type(value)), self._state(value)]

    def _state(self, value: object) -> Any:
        """Contents of an object, as of a partial call its function and arguments."""
        if isinstance(value, msgspec.Struct):
            return self.of(msgspec.structs.asdict(value))
        try:
            kept = value.__reduce_ex__(4)
        except Exception:  # of classes that refuse, each in its way
            return uuid4().hex
        if isinstance(kept, str):  # a global object, such as a function in C or a cached one
            wrapped = vars(value) if isinstance(value, _CACHED) else {}
            return [kept, self.of(wrapped)]
        return [self.of([*part] if isinstance(part, Iterator) else part) for part in kept]

    def _class(self, cls: type) -> Any:
        """Name of a class, and the members of a user-defined one."""
        name = f"{cls.__module__}.{cls.__qualname__}"
        if not _is_user_defined(cls.__module__):
            return [name, self._module(cls.__module__)]
        members = [
            (key, self.of(value))
            for key, value in vars(cls).items()
            if isinstance(value, FunctionType) or not key.startswith(("__", "_abc_"))
        ]
        return [name, members, self.of(cls.__bases__)]

    def _function(self, function: FunctionType) -> Any:
        """Code of a function, and the values of the names in it."""
        if not _is_user_defined(function.__module__ or ""):  # None: made by a program
            return [function.__qualname__, self._module(function.__module__)]
        names = _names(function.__code__)
        rest = [function.__defaults__, function.__kwdefaults__, vars(function)]
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        used = self._used(function.__globals__, names)
        return [self._code(function.__code__), self.of(rest), self.of(cells), used]

    def _used(self, values: Mapping[str, object], names: Set[str]) -> Any:
        """Values of the names in a code, and of those that it looks up in user-defined modules."""
        used = []
        for name in sorted(names & values.keys()):
            value = values[name]
            used.append([name, self.of(value)])
            is_module = isinstance(value, ModuleType) and _is_user_defined(value.__name__)
            if is_module and id(value) not in self._entered:
                self._entered.add(id(value))
                used.append(self._used(vars(value), names))
                self._entered.remove(id(value))
        return used

    def _code(self, code: CodeType) -> Any:
        consts = [self.of(value) for value in code.co_consts]
        return [code.co_code.hex(), consts, code.co_names, code.co_varnames]

    def _module(self, name: str) -> Any:
        """Name of a module, and the contents of its file unless the release determines them."""
        root = name.partition(".")[0]
        if root in _OWN or root in sys.stdlib_module_names:
            return name
        file = getattr(sys.modules.get(name), "__file__", None)
        return [name, "" if file is None else content(file)]


def _is_user_defined(module: str) -> bool:
    """Whether the code of a module is described; that of installed packages is in a file."""
    root = module.partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return root not in _OWN | sys.stdlib_module_names and "site-packages" not in file


def _contents(cell: CellType) -> Any:
    """Value of a variable of an enclosing function; None if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: CodeType) -> set[str]:
    """Names in a code and in the functions inside it."""
    inner = (value for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def content(path: str) -> str:
    """Digest of the contents of a file; the path if there is none."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return path
    return _content_of(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=1000)
def _content_of(path: str, *state: int) -> str:
    """Digest of a file in a state, so that a large trace is read once for a grid."""
    return sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else path
