"""Communicators, windows and files that a program makes, which belong to the processes of one size.

After a resize they would not raise an error: a communicator would be one of a part of the job, or
wait for processes that have left. Therefore the methods of mpi4py that make them are wrapped, each
result is remembered with the line that made it, and a resize makes its handle a null handle. So its
use raises an error, to which `explain` adds both lines. That it exists is no error. A communicator
can still be freed.

What C code keeps is not reached, nor are requests, copies of a handle such as
``MPI.Intracomm(comm)``, and what was made before this package was imported.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass
from linecache import getline
from types import CodeType, FrameType, TracebackType
from typing import Any
from weakref import ReferenceType, ref

from mpi4py import MPI

log = logging.getLogger(__name__)

#: A warning is given when so many of them exist; MPICH allows about 2000 communicators a process.
MANY = 1000
SEVERAL = 20
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
_OWN = ("reshape", "redistribution")  # packages whose results no resize ends
_PASSED = ("mpi4py", *_OWN)
_SELF = MPI._handleof(MPI.COMM_SELF)
_addressof, _handleof = MPI._addressof, MPI._handleof


@dataclass(slots=True)
class _Made:
    """A communicator, window or file that the program has made and not freed.

    Attributes
    ----------
    known : refers to it.
    code, instruction : where it was made; to find the line takes as long as the rest.
    is_of_self : whether it has its origin in MPI.COMM_SELF, which no resize changes.
    handle : its handle, if a resize has made that a null handle.
    """

    known: ReferenceType[Any]
    code: CodeType
    instruction: int
    is_of_self: bool
    handle: bytes = b""

    @property
    def place(self) -> str:
        """File and line where it was made."""
        lines = [position[0] for position in self.code.co_positions()]
        return f"{self.code.co_filename}:{lines[self.instruction // 2]}"


_made: dict[int, _Made] = {}  # by handle
_warnings: list[str] = []  # those that were given, at most one


def watch() -> None:
    """Remember what the program makes from now on."""
    if getattr(MPI.Comm.Split, "__wrapped__", None) is not None:
        return
    for wrapper, names in ((_maker, _MAKERS), (_ender, _ENDERS)):
        for kind, methods in names.items():
            table = gc.get_referents(vars(kind))[0]  # mpi4py's types refuse setattr
            for method in methods:
                given = table[method]
                if isinstance(given, classmethod):
                    table[method] = classmethod(wrapper(given.__func__))
                else:
                    table[method] = wrapper(given)
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _maker(method: Callable[..., Any]) -> Callable[..., Any]:
    def make(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(self, *args, **kwargs)
        _remember(made[0] if type(made) is tuple else made, self, sys._getframe(1))
        return made

    return _like(method, make)


def _ender(method: Callable[..., Any]) -> Callable[..., Any]:
    def end(self: Any) -> None:
        if _made.pop(_handleof(self), None) is None and _made:
            _restore(self)
        method(self)

    return _like(method, end)


def _like(method: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    for name in ("__name__", "__qualname__", "__doc__"):
        setattr(wrapper, name, getattr(method, name))
    wrapper.__wrapped__ = method  # type: ignore[attr-defined]
    return wrapper


def _remember(made: Any, parent: Any, frame: FrameType) -> None:
    while str(frame.f_globals.get("__name__", "")).startswith(_PASSED):
        if _package(frame) in _OWN:
            return
        if _package(frame) != "mpi4py":
            break
        if frame.f_back is None:
            return
        frame = frame.f_back
    if not made:  # a null handle is false
        return
    origin = 0 if isinstance(parent, type) else _handleof(parent)
    of_self = origin == _SELF or (origin in _made and _made[origin].is_of_self)
    _made[_handleof(made)] = _Made(ref(made), frame.f_code, frame.f_lasti, of_self)
    if len(_made) == MANY and not _warnings:
        _warnings.append(f"{count()}; free what is not used any more: MPI has about 2000")
        log.warning(_warnings[0])


def count() -> str:
    """Say how many of them exist, and where most were made; empty if there are none."""
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
    return count() if len(_made) >= SEVERAL else ""


def retire_derived(before: int) -> None:
    """Make the handles of all of them null handles, since the processes of the job change.

    Communicators of one process alone remain, unless the whole job was this process.

    Parameters
    ----------
    before : number of processes of the job so far.
    """
    for made in list(_made.values()):
        known = made.known()
        if known is None or made.handle or made.is_of_self:
            continue
        if before > 1 and isinstance(known, MPI.Intracomm) and _is_alone(known):
            continue
        null = next(_NULLS[kind] for kind in _NULLS if isinstance(known, kind))
        size = MPI._sizeof(type(null))
        made.handle = ctypes.string_at(_addressof(known), size)
        ctypes.memmove(_addressof(known), _addressof(null), size)


def _is_alone(comm: MPI.Intracomm) -> bool:
    try:
        return comm.size == 1
    except MPI.Exception:  # freed by other means
        return False


def _restore(ended: Any) -> None:
    """Give a communicator its handle back, so that it can be freed."""
    for key, made in list(_made.items()):
        if made.handle and made.known() is ended and isinstance(ended, MPI.Comm):
            ctypes.memmove(_addressof(ended), made.handle, len(made.handle))
            del _made[key]
            return


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
        "a resize: make it again after each resize"
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
    return [made for made in retired if id(made.known()) in ids]


def _innermost(trace: TracebackType | None) -> tuple[FrameType | None, int]:
    """The last call of the program that an error has passed, and its line."""
    found: FrameType | None = None
    line = 0
    while trace is not None:
        if _package(trace.tb_frame) not in _PASSED:
            found, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return found, line


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


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
