"""MPI.COMM_WORLD, which is not the communicator of a job that was resized.

Each group of a job is a world of its own, so a program that keeps `MPI.COMM_WORLD` would see one
rank 0 in each group, and sums over a part of the job. Once a job consists of other processes than
its first world, `MPI.COMM_WORLD` is therefore retired: its handle becomes MPI_COMM_NULL, so that
each operation on any reference to it raises an error. `Abort` still ends the world.

This cannot reach communicators that the program derived from it or from `app.comm`: after an
expansion they work on a part of the job, and after a contraction they wait for processes that have
left. At the first resize point the program is therefore warned of those that variables hold.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from mpi4py import MPI

from reshape.errors import ReshapeError

log = logging.getLogger(__name__)

#: The world of this process, valid for its whole life. Its handle is copied, because a function of
#: MPI may be called only after its initialization.
WORLD = MPI.Intracomm()
ctypes.memmove(MPI._addressof(WORLD), MPI._addressof(MPI.COMM_WORLD), MPI._sizeof(MPI.Comm))
NOTE = (
    "MPI.COMM_WORLD and communicators from before a resize do not belong to the present processes "
    "of this job: use app.comm, and read it again in each iteration"
)
_abort = MPI.Comm.Abort
_finalize = MPI.Finalize
_FINALIZED = (
    "MPI.Finalize() is called within the block 'with reshape.application()', which still needs "
    "MPI: leave the call out, since MPI ends with the program, or put it behind the block"
)


def retire() -> None:
    """Let all operations on MPI.COMM_WORLD raise an error, except `Abort`, from now on."""
    if is_retired():
        return
    methods = gc.get_referents(vars(MPI.Comm))[0]  # mpi4py's types refuse setattr
    methods["Abort"] = _abort_any
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(MPI.Comm))
    null, world = MPI._addressof(MPI.COMM_NULL), MPI._addressof(MPI.COMM_WORLD)
    ctypes.memmove(world, null, MPI._sizeof(MPI.Comm))


def is_retired() -> bool:
    """Whether MPI.COMM_WORLD is retired."""
    return bool(MPI.COMM_WORLD == MPI.COMM_NULL)


def refuse_finalize() -> None:
    """Let MPI.Finalize raise an error until `allow_finalize`: resizes and the end need MPI."""

    def refuse() -> None:
        raise ReshapeError(_FINALIZED)

    vars(MPI)["Finalize"] = refuse


def allow_finalize() -> None:
    """Give MPI.Finalize back to the program."""
    vars(MPI)["Finalize"] = _finalize


def check_initialized() -> None:
    """Raise an error if the program has ended MPI by an earlier reference to MPI.Finalize.

    No function of MPI may be called then, so the process ends without the others.

    Raises
    ------
    ReshapeError : it has.
    """
    if MPI.Is_finalized():
        raise ReshapeError(_FINALIZED)


def add_note(error: BaseException) -> None:
    """Add to an error of a communicator that is retired or freed a note that says what to use."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MPI.Exception) and cause.Get_error_class() == MPI.ERR_COMM:
            if is_retired() and NOTE not in getattr(error, "__notes__", ()):
                error.add_note(NOTE)
            return
        cause = cause.__cause__ or cause.__context__


def _abort_any(comm: MPI.Comm, errorcode: int = 0) -> None:
    """`MPI.Comm.Abort`, which ends the world of this process for the retired MPI.COMM_WORLD."""
    _abort(WORLD if comm is MPI.COMM_WORLD else comm, errorcode)


def warn_of_kept(comm: MPI.Intracomm) -> None:
    """Warn of each variable with a communicator that a resize makes wrong, but not invalid."""
    for variable in kept_communicators(comm):
        log.warning(
            "variable %s holds a communicator that will not have the processes of the job "
            "after a resize: derive it from app.comm in each iteration, and free it there",
            variable,
        )


def kept_communicators(comm: MPI.Intracomm) -> list[str]:
    """Name the variables with communicators of several processes of `comm`, itself excluded.

    The search covers the globals of ``__main__``, and globals and locals of the functions that are
    being called, outside of this package. Communicators within other objects are not found.
    """
    names: dict[str, None] = {}  # a set that keeps the order
    for where, variables in _namespaces():
        for name, value in list(variables.items()):
            if isinstance(value, MPI.Intracomm) and _outlives(value, comm):
                names[f"{name!r} {where}"] = None
    return list(names)


def _outlives(kept: MPI.Intracomm, comm: MPI.Intracomm) -> bool:
    """Whether a resize leaves a communicator usable although it changes the processes."""
    if kept is MPI.COMM_WORLD or kept is comm or kept in (MPI.COMM_NULL, MPI.COMM_SELF):
        return False
    return comm.size == 1 or kept.size > 1


def _namespaces() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the variables of the program and a phrase that says where they are."""
    main = sys.modules.get("__main__")
    if main is not None:
        yield "of the program", vars(main)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] != "reshape":
            if frame.f_locals is not frame.f_globals:
                yield f"of {frame.f_code.co_qualname}() in {module}", frame.f_locals
            if module != "__main__":
                yield f"of {module}", frame.f_globals
        frame = frame.f_back
