"""The small MPI programs that are started to see whether the MPI at hand works.

``mpiexec -n N python -m mpi4py -m reshape.doctor.programs NAME ...``; mpi4py's runner aborts the
whole world when one of its ranks raises. Each program prints what it found as one JSON object a
line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mpi4py
from mpi4py import MPI

from reshape.errors import ReshapeError


def library() -> None:
    """Tell which MPI library mpi4py is bound to."""
    first_line = MPI.Get_library_version().strip("\x00").splitlines()[0]
    _tell(library=" ".join(first_line.split()), mpi4py=mpi4py.__version__)


def world() -> None:
    """Collective over COMM_WORLD. Tell its size once; N worlds of size 1 tell it N times."""
    _check_sum(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        _tell(size=MPI.COMM_WORLD.size)


def groups(directory: str, group: str, leavers: str) -> None:
    """Collective over COMM_WORLD. Take part in a series of joins as one of the groups.

    Parameters
    ----------
    directory : where the accepting groups leave their ports.
    group : number of this group, from 0.
    leavers : comma-separated; after the join of group k = 1, 2, ... the k-th of them leaves.

    The last one to stay tells in which order the groups joined, as handed from group to group.
    """
    me, joined = int(group), [int(group)]
    comm = MPI.COMM_WORLD.Dup()
    for newcomer, leaver in enumerate(map(int, leavers.split(",")), start=1):
        if newcomer < me:
            continue  # happened before this group came
        inter = _join(comm, Path(directory) / f"port.{newcomer}", accept=me != newcomer)
        merged = inter.Merge(me == newcomer)
        _check_sum(merged)
        joined = merged.bcast([*joined, newcomer], root=0)
        staying = merged.Split(MPI.UNDEFINED if me == leaver else 0, merged.rank)
        merged.Free()
        inter.Disconnect()
        comm.Free()
        if me == leaver:
            return
        comm = MPI.Intracomm(staying)
    _check_sum(comm)
    if comm.rank == 0:
        _tell(joined=joined, size=comm.size)
    comm.Free()


def spawn() -> None:
    """Collective over COMM_WORLD. Spawn a process, merge with it, part again; twice."""
    sizes = []
    for _ in range(2):
        arguments = ["-m", "mpi4py", "-m", "reshape.doctor.programs", "spawned"]
        inter = MPI.COMM_WORLD.Spawn(sys.executable, arguments, maxprocs=1)
        sizes.append(_meet(inter, newcomer=False))
    if MPI.COMM_WORLD.rank == 0:
        _tell(sizes=sizes)


def spawned() -> None:
    """Collective over COMM_WORLD. Be the process that `spawn` starts."""
    _meet(MPI.Comm.Get_parent(), newcomer=True)


def _join(comm: MPI.Intracomm, port_file: Path, accept: bool) -> MPI.Intercomm:
    """Collective over comm. Accept a group or connect to one; the port goes by a file."""
    if not accept:
        while comm.rank == 0 and not port_file.exists():
            time.sleep(0.01)
        return comm.Connect(port_file.read_text() if comm.rank == 0 else "")
    port = MPI.Open_port() if comm.rank == 0 else ""
    if comm.rank == 0:
        hidden = port_file.with_suffix(".new")
        hidden.write_text(port)
        hidden.rename(port_file)  # whoever sees the file sees all of it
    inter = comm.Accept(port)
    if comm.rank == 0:
        MPI.Close_port(port)
    return inter


def _meet(inter: MPI.Intercomm, newcomer: bool) -> int:
    """Collective over both sides of inter. Merge, check, part; gives the merged size."""
    merged = inter.Merge(newcomer)
    _check_sum(merged)
    size = merged.size
    merged.Free()
    inter.Disconnect()
    return size


def _check_sum(comm: MPI.Intracomm) -> None:
    """Collective over comm. Raise unless a sum over the ranks comes out right."""
    total, expected = comm.allreduce(comm.rank), comm.size * (comm.size - 1) // 2
    if total != expected:
        raise ReshapeError(f"the sum over {comm.size} ranks gave {total} instead of {expected}")


def _tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


PROGRAMS: dict[str, Callable[..., None]] = {
    program.__name__: program for program in (library, world, groups, spawn, spawned)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
