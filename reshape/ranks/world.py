"""MPI.COMM_WORLD of a process whose job has, or may get, other processes than its world.

Each group of a job is a world of its own, so a program that keeps `MPI.COMM_WORLD` would see one
rank 0 in each group, and sums over a part of the job. Once a job consists of other processes than
its first world, `MPI.COMM_WORLD` is therefore retired: its handle becomes MPI_COMM_NULL, so that
each operation on any reference to it raises an error. `Abort` still ends the world.
"""

from __future__ import annotations

import ctypes
import gc

from mpi4py import MPI

from reshape.errors import ReshapeError

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


def _abort_any(comm: MPI.Comm, errorcode: int = 0) -> None:
    """`MPI.Comm.Abort`, which ends the world of this process for the retired MPI.COMM_WORLD."""
    _abort(WORLD if comm is MPI.COMM_WORLD else comm, errorcode)
