"""Variables that keep a communicator of the processes of one size.

A resize frees `app.comm` and retires MPI.COMM_WORLD, so that their use raises an error. It cannot
reach communicators that the program derived from them: after an expansion they work on a part of
the job, and after a contraction they wait for processes that have left. At the first resize point
the program is therefore warned of those that variables hold.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from mpi4py import MPI


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
