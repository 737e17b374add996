"""Communicators, windows and files that a program makes, which belong to the processes of one size.

After a resize a communicator would be one of a part of the job, or wait for processes that have
left, and its use would raise no error. Therefore the methods of mpi4py that make such objects are
wrapped, each result is recorded with the line that made it, and a resize makes its handle a null
handle. So its use raises an error, to which `explain` adds both lines. That it exists is no error.
A communicator can still be freed. `reshape.data.each_size` frees by the same record what its
functions have made.

What C code keeps is not reached, nor are requests, copies of a handle such as
``MPI.Intracomm(MPI.COMM_WORLD)``, and what was made before this package was imported.

To split a communicator of one process takes 1 us, so a call only appends to a list, and `_settle`
works through the list. The list refers to the objects themselves, since mpi4py makes the handle of
one that is freed a null handle; a weak reference would not tell whether an object that is gone was
freed. A wrapper has the parameters of its method, because ``*args, **kwargs`` would cost as much
again as the record.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from linecache import getline
from pathlib import Path
from threading import RLock
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeAlias

from mpi4py import MPI

log = logging.getLogger(__name__)

#: A warning is given when so many of them exist; MPICH allows about 2000 communicators a process.
MANY = 1000
SEVERAL = 20
#: Methods that make a communicator with another program, which ends by Disconnect.
_CONNECT = ("Accept", "Connect", "Join", "Spawn", "Spawn_multiple")
_MAKERS: dict[type, tuple[str, ...]] = {
    MPI.Comm: (
        *("Clone", "Create", "Dup", "Dup_with_info", "Idup", "Idup_with_info", "Join", "Shrink"),
        *("Split", "Split_type"),
    ),
    MPI.Intracomm: (
        *("Accept", "Connect", "Create_cart", "Create_dist_graph", "Create_dist_graph_adjacent"),
        *("Create_from_group", "Create_graph", "Create_group", "Create_intercomm"),
        *("Spawn", "Spawn_multiple"),
    ),
    MPI.Cartcomm: ("Sub",),
    MPI.Intercomm: ("Create_from_groups", "Merge"),
    MPI.Win: ("Allocate", "Allocate_shared", "Create", "Create_dynamic"),
    MPI.File: ("Open",),
}
_ENDERS: dict[type, tuple[str, ...]] = {
    MPI.Comm: ("Disconnect", "Free"),
    MPI.Win: ("Free",),
    MPI.File: ("Close",),
}
_NULLS = {MPI.Comm: MPI.COMM_NULL, MPI.Win: MPI.WIN_NULL, MPI.File: MPI.FILE_NULL}
_NAMES = {MPI.Comm: "communicator", MPI.Win: "window", MPI.File: "file"}
_ERRORS: dict[int, type] = {
    MPI.ERR_COMM: MPI.Comm,
    MPI.ERR_WIN: MPI.Win,
    MPI.ERR_FILE: MPI.File,
}
_PASSED = ("mpi4py", "reshape", "redistribution")  # packages that errors pass
#: Folders of the packages whose results no resize ends.
_OWN = tuple(str(Path(__file__).parents[1] / name) + os.sep for name in _PASSED[1:])
_addressof, _handleof = MPI._addressof, MPI._handleof
_MOST_NEW = 100  # calls until the list is worked through
_MAKER = """
def {name}({parameters}):
    made = method({parameters})
    frame = caller(1)
    new.append((made, {origin}, {name!r}, frame.f_code, frame.f_lasti))
    if len(new) > {most}:
        settle()
    return made
"""


@dataclass(slots=True)
class _Made:
    """A communicator, window or file that the program has made and not freed.

    Attributes
    ----------
    key : its handle, as a number.
    known : the object.
    method : name of the method that has made it.
    code, instruction : where that was called; to find the line takes longer than all the rest.
    is_of_self : whether it has its origin in MPI.COMM_SELF, which no resize changes.
    owner : what frees it, if that is not the program.
    handle : its handle as bytes, if a resize has made that a null handle.
    """

    key: int
    known: Any
    method: str
    code: CodeType
    instruction: int
    is_of_self: bool
    owner: object
    handle: bytes = b""

    @property
    def place(self) -> str:
        """File and line where it was made."""
        lines = [position[0] for position in self.code.co_positions()]
        return f"{self.code.co_filename}:{lines[self.instruction // 2]}"


#: A call: its result, the communicator of its origin, name of the method, code and instruction.
_Entry: TypeAlias = tuple[Any, Any, str, CodeType, int]
_new: list[_Entry] = []
_made: dict[int, _Made] = {}  # by handle
_owners: list[object] = []  # of what is made now; at most one
_warnings: list[str] = []  # those that were given, at most one
_settling = RLock()  # a finaliser of the program may free a communicator at any moment


@cache
def watch() -> None:
    """Record what the program makes from now on."""
    _wrap(_MAKERS, _maker)


@cache
def _watch_ends() -> None:
    """Notice from now on what the program frees, also by a copy of its handle."""
    _wrap(_ENDERS, _ender)


def _wrap(
    methods: dict[type, tuple[str, ...]], wrapper: Callable[[Callable[..., Any]], Any]
) -> None:
    for kind, names in methods.items():
        table = gc.get_referents(vars(kind))[0]  # mpi4py's types refuse setattr
        for name in names:
            given = table[name]
            is_of_class = isinstance(given, classmethod)
            method = given.__func__ if is_of_class else given
            made = wrapper(method)
            made.__qualname__, made.__doc__ = method.__qualname__, method.__doc__
            made.__wrapped__ = method
            table[name] = classmethod(made) if is_of_class else made
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _maker(method: Callable[..., Any]) -> Callable[..., Any]:
    code = method.__code__
    parameters = code.co_varnames[: code.co_argcount]
    text = _MAKER.format(
        name=method.__name__,
        parameters=", ".join(parameters),
        origin="comm" if "comm" in parameters else parameters[0],
        most=_MOST_NEW,
    )
    names: dict[str, Any] = {
        "__name__": __name__,
        "method": method,
        "caller": sys._getframe,
        "new": _new,
        "settle": _settle,
    }
    exec(compile(text, __file__, "exec"), names)
    make: Callable[..., Any] = names[method.__name__]
    make.__defaults__ = method.__defaults__
    return make


def _ender(method: Callable[..., Any]) -> Callable[..., Any]:
    def end(self: Any) -> None:
        if _owners:  # each free counts; elsewhere the handle of an object tells
            _settle()
        if _made.pop(_handleof(self), None) is None and not self:
            _restore(self)
        method(self)

    return end


def _settle() -> None:
    """Work through the results of calls; drop what is freed."""
    with _settling:
        batch = _new[:]
        del _new[: len(batch)]
        for entry in [entry for entry in batch if entry[0]]:  # a null handle is false
            _record(entry, batch)
        for each in list(_made.values()):
            if not each.known and not each.handle:
                _made.pop(each.key, None)
    if len(_made) >= MANY and not _warnings:
        _warnings.append("")
        _warnings[0] = f"{count()}; free what is not used any more: MPI has about 2000"
        log.warning(_warnings[0])


def _record(entry: _Entry, batch: list[_Entry]) -> None:
    result, origin, method, code, instruction = entry
    if code.co_filename.startswith(_OWN):
        return
    known = result[0] if type(result) is tuple else result  # of Idup, with a request
    key, owner = _handleof(known), _owners[0] if _owners else None
    _made.pop(key, None)  # one that was freed by a copy of its handle
    _made[key] = _Made(key, known, method, code, instruction, _is_self(origin, batch), owner)


def _is_self(comm: Any, batch: list[_Entry]) -> bool:
    """Whether a communicator is MPI.COMM_SELF or has its origin in that."""
    return (
        comm == MPI.COMM_SELF
        or any(each.is_of_self for each in list(_made.values()) if each.known is comm)
        or any(_is_self(entry[1], batch) for entry in batch if entry[0] is comm and not comm)
    )


# ---------------------------------------------------------------- messages about them


def count() -> str:
    """Say how many of them exist, and where most were made; empty if there are none."""
    _settle()
    places = Counter(made.place for made in list(_made.values()))
    if not places:
        return ""
    ((place, most),) = places.most_common(1)
    return (
        f"{len(_made)} communicators, windows and files exist that the program has made and not "
        f"freed, {most} of them at {place}"
    )


def text_of_many() -> list[str]:
    """As `count`; nothing if they are fewer than a program of one size needs at a time."""
    text = count()
    return [text] if len(_made) >= SEVERAL else []


# ---------------------------------------------------------------- their end


def retire_derived(before: int) -> None:
    """Make the handles of all of them null handles, since the processes of the job change.

    Communicators of one process alone remain, unless the whole job was this process.

    Parameters
    ----------
    before : number of processes of the job so far.
    """
    _watch_ends()
    _settle()
    for made in list(_made.values()):
        if made.handle or made.is_of_self or (before > 1 and _is_alone(made.known)):
            continue
        null = next(_NULLS[kind] for kind in _NULLS if isinstance(made.known, kind))
        size = MPI._sizeof(type(null))
        made.handle = ctypes.string_at(_addressof(made.known), size)
        ctypes.memmove(_addressof(made.known), _addressof(null), size)


def _is_alone(known: Any) -> bool:
    """Whether a communicator, window or file belongs to this process alone."""
    if isinstance(known, MPI.Intercomm):
        return False
    try:
        group = known.Get_group()
    except MPI.Exception:  # freed by other means
        return False
    size = group.size
    group.Free()
    return bool(size == 1)


def _restore(ended: Any) -> None:
    """Give a communicator its handle back, so that it can be freed."""
    for made in list(_made.values()):
        if made.handle and made.known is ended and isinstance(ended, MPI.Comm):
            ctypes.memmove(_addressof(ended), made.handle, len(made.handle))
            del _made[made.key]
            return


@contextmanager
def owned_by(owner: object) -> Iterator[None]:
    """Let `free` end the communicators that are made within the block."""
    _watch_ends()
    _settle()
    _owners.append(owner)
    try:
        yield
    finally:
        _settle()
        _owners.clear()


def free(owner: object) -> None:
    """Collective over each of them. Free the derived communicators of an owner, the last one first.

    Communicators with other programs, as of Spawn and Accept, are not derived: they end by
    Disconnect.
    """
    for made in reversed([each for each in list(_made.values()) if each.owner is owner]):
        if isinstance(made.known, MPI.Comm) and made.known and made.method not in _CONNECT:
            made.known.Free()


# ---------------------------------------------------------------- errors of their use


def explain(error: BaseException) -> bool:
    """Add to an error of the use of one of them a note with the lines of its use and its origin.

    Returns
    -------
    whether it is known which one was used.
    """
    kind = _ERRORS.get(error.Get_error_class()) if isinstance(error, MPI.Exception) else None
    retired = [made for made in list(_made.values()) if made.handle]
    frame, line = _innermost(error.__traceback__)
    if kind is None or frame is None or not retired:
        return False
    file = frame.f_code.co_filename
    words = set(re.findall(r"\w+", getline(file, line)))
    used = _held(retired, kind, frame, words) or _held(retired, kind, frame)
    places = " or ".join(sorted({made.place for made in used or retired}))
    error.add_note(
        f"{file}:{line} {'uses' if used else 'may use'} a {_NAMES[kind]} that {places} made before "
        "a resize: make it in a function of app.each_size"
    )
    return bool(used)


def _held(
    retired: list[_Made], kind: type, frame: FrameType, names: Container[str] | None = None
) -> list[_Made]:
    """Those that variables of a call hold, or their attributes and elements.

    Parameters
    ----------
    names : of the variables; None: all of them.
    """
    ids = set()
    for variables in (frame.f_locals, frame.f_globals):
        for name, value in list(variables.items()):
            if names is None or name in names:
                ids |= {id(part) for part in _parts(value) if isinstance(part, kind)}
    return [made for made in retired if id(made.known) in ids]


def _innermost(trace: TracebackType | None) -> tuple[FrameType | None, int]:
    """The last call of the program that an error has passed, and its line."""
    calls = [
        (frame, line)
        for frame, line in walk_tb(trace)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _PASSED
    ]
    return calls[-1] if calls else (None, 0)


def _parts(value: Any, depth: int = 2) -> list[Any]:
    """A value with its elements or attributes, and theirs."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif isinstance(getattr(value, "__dict__", None), dict):
        inner = list(vars(value).values())
    return (
        [value, *(part for each in inner for part in _parts(each, depth - 1))] if depth else [value]
    )
