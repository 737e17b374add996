"""MPI.COMM_WORLD, which is not the communicator of a job that was resized.

Each group of a job is a world of its own, so a program that keeps `MPI.COMM_WORLD` would see one
rank 0 in each group, and sums over a part of the job. Once a job consists of other processes than
its first world, `MPI.COMM_WORLD` is therefore retired: its handle becomes MPI_COMM_NULL, so that
each operation on any reference to it raises an error. `Abort` still ends the world.
"""

from __future__ import annotations

import ctypes
import gc

from mpi4py import MPI

#: The world of this process, valid for its whole life.
WORLD = MPI.Intracomm(MPI.COMM_WORLD)
NOTE = (
    "MPI.COMM_WORLD and communicators from before a resize do not belong to the present processes "
    "of this job: use app.comm, and read it again in each iteration"
)
_abort = MPI.Comm.Abort


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
