"""Communicators, windows and files that a program makes, which belong to the processes of one size.

After a resize a communicator would be one of a part of the job, or wait for processes that have
left, and its use would raise no error. Therefore the methods of mpi4py that make such objects are
wrapped, each result is recorded with the line that made it, and a resize makes its handle a null
handle. So its use raises an error, to which `explain` adds both lines. That it exists is no error.
A communicator can still be freed. `reshape.data.each_size` frees by the same record what its
functions have made.

What C code keeps is not reached, nor are requests, copies of a handle such as
``MPI.Intracomm(MPI.COMM_WORLD)``, and what was made before this package was imported.

The record refers to the objects themselves, since mpi4py makes the handle of one that is freed a
null handle; a weak reference would not tell whether an object that is gone was freed.
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
from functools import cache, wraps
from inspect import signature
from linecache import getline
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

import msgspec
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
_PASSED = ("mpi4py", "contextlib", "reshape", "redistribution")  # packages that errors pass
#: Folders of the packages whose results no resize ends.
_OWN = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in _PASSED[2:])
_addressof, _handleof = MPI._addressof, MPI._handleof
_signature = cache(signature)


class _Made(msgspec.Struct, eq=False):
    """A communicator, window or file that the program has made and not freed.

    Attributes
    ----------
    known : the object.
    method : name of the method that has made it.
    place : file and line where that was called.
    is_of_self : whether it has its origin in MPI.COMM_SELF, which no resize changes.
    owner : what frees it, if that is not the program.
    handle : its handle as bytes, if a resize has made that a null handle.
    """

    known: Any
    method: str
    place: str
    is_of_self: bool
    owner: object
    handle: bytes = b""


_made: dict[int, _Made] = {}  # by handle
_owners: list[object] = []  # of what is made now; at most one


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
            entry = table[name]
            is_of_class = isinstance(entry, classmethod)
            method = entry.__func__ if is_of_class else entry
            made = wraps(method)(wrapper(method))
            table[name] = classmethod(made) if is_of_class else made
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _maker(method: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        made, frame, origin = method(*args, **kwargs), sys._getframe(1), args[0]
        if not frame.f_code.co_filename.startswith(_OWN):
            result = made[0] if type(made) is tuple else made  # of Idup, with a request
            if not isinstance(result, MPI.Comm):  # a window or file, which is over an argument
                bound = _signature(method).bind(*args, **kwargs)
                bound.apply_defaults()
                origin = bound.arguments["comm"]
            _record(result, origin, method.__name__, frame)
        return made

    return make


def _ender(method: Callable[..., Any]) -> Callable[..., Any]:
    def end(self: Any) -> None:
        if _made.pop(_handleof(self), None) is None and not self:
            _restore(self)
        method(self)

    return end


def _record(result: Any, origin: Any, method: str, frame: FrameType) -> None:
    if not result:  # a null handle is false
        return
    of_origin = _made.get(_handleof(origin)) if isinstance(origin, MPI.Comm) else None
    is_of_self = origin == MPI.COMM_SELF or (
        of_origin is not None and of_origin.known is origin and of_origin.is_of_self
    )
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    key, owner = _handleof(result), _owners[0] if _owners else None
    _made.pop(key, None)  # one that was freed; the latest comes last, which `free` needs
    _made[key] = _Made(result, method, place, is_of_self, owner)
    if len(_made) % MANY == 0:
        _forget_freed()
        if len(_made) >= MANY:
            _warn()


def _forget_freed() -> None:
    for key, made in list(_made.items()):
        if not made.known and not made.handle:
            _made.pop(key, None)


@cache
def _warn() -> None:
    log.warning("%s; free what is not used any more: MPI has about 2000", count())


# ---------------------------------------------------------------- messages about them


def count() -> str:
    """Say how many of them exist, and where most were made; empty if there are none."""
    _forget_freed()
    places = Counter(made.place for made in list(_made.values()))
    if not places:
        return ""
    ((place, most),) = places.most_common(1)
    return (
        f"{len(_made)} communicators, windows and files exist that the program has made and not "
        f"freed, {most} of them at {place}"
    )


def text_of_many() -> str:
    """As `count`; empty if they are fewer than a program of one size needs at a time."""
    text = count()
    return text if len(_made) >= SEVERAL else ""


# ---------------------------------------------------------------- their end


def retire_derived(before: int) -> None:
    """Make the handles of all of them null handles, since the processes of the job change.

    Communicators of one process alone remain, unless the whole job was this process.

    Parameters
    ----------
    before : number of processes of the job so far.
    """
    _watch_ends()
    _forget_freed()
    for made in list(_made.values()):
        if made.handle or made.is_of_self or (before > 1 and _is_alone(made.known)):
            continue
        null = next(_NULLS[kind] for kind in _NULLS if isinstance(made.known, kind))
        size = MPI._sizeof(type(null))
        made.handle = ctypes.string_at(_addressof(made.known), size)
        ctypes.memmove(_addressof(made.known), _addressof(null), size)


def _is_alone(result: Any) -> bool:
    """Whether a communicator, window or file belongs to this process alone."""
    if isinstance(result, MPI.Intercomm):
        return False
    try:
        group = result.Get_group()
    except MPI.Exception:  # freed by other means
        return False
    size = group.size
    group.Free()
    return bool(size == 1)


def _restore(ended: Any) -> None:
    """Give a communicator its handle back, so that it can be freed."""
    for key, made in list(_made.items()):
        if made.handle and made.known is ended and isinstance(ended, MPI.Comm):
            ctypes.memmove(_addressof(ended), made.handle, len(made.handle))
            del _made[key]
            return


@contextmanager
def owned_by(owner: object) -> Iterator[None]:
    """Let `free` end the communicators that are made within the block."""
    _watch_ends()
    _owners.append(owner)
    try:
        yield
    finally:
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
    frame, line = innermost(error.__traceback__)
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
    """Those that variables of a call, of these names or any, hold themselves or in their parts."""
    ids = set()
    for variables in (frame.f_locals, frame.f_globals):
        for name, value in list(variables.items()):
            if names is None or name in names:
                ids |= {id(part) for part in _parts(value) if isinstance(part, kind)}
    return [made for made in retired if id(made.known) in ids]


def innermost(trace: TracebackType | None) -> tuple[FrameType | None, int]:
    """Return the last call of the program that an error has passed, and its line."""
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
