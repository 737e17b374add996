"""The small MPI programs with which `reshape doctor` checks an MPI installation.

They are run as ``mpiexec -n N python -m mpi4py -m reshape.doctor.programs NAME ...``. The runner of
mpi4py aborts the whole world if one of its ranks raises an exception. Each program prints its
results as JSON objects, one per line.
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
from reshape.ranks.leak_report import omit_descriptions

#: Exchanges of short messages and of long ones, and the length of the long ones, bytes.
_EXCHANGES, _LARGE_EXCHANGES, _LARGE = 500, 5, 1 << 24


def library() -> None:
    """Print the MPI library that mpi4py is bound to."""
    first_line = MPI.Get_library_version().strip("\x00").splitlines()[0]
    _print(library=" ".join(first_line.split()), mpi4py=mpi4py.__version__)


def world() -> None:
    """Collective over COMM_WORLD. Print its size on rank 0; N worlds of size 1 print N lines."""
    _check_sum(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        _print(size=MPI.COMM_WORLD.size)


def groups(directory: str, group: str, leavers: str) -> None:
    """Collective over COMM_WORLD. Take part in a series of joins as one of the groups.

    Parameters
    ----------
    directory : place of the files with the ports of the accepting groups.
    group : number of this group, from 0.
    leavers : group numbers, separated by commas; the k-th leaves after the join of group k.

    The last remaining group prints the order in which the groups joined, which each group passes on
    to the next.
    """
    omit_descriptions()
    own, joined = int(group), [int(group)]
    comm = MPI.COMM_WORLD.Dup()
    for joining, leaver in enumerate(map(int, leavers.split(",")), start=1):
        if joining < own:
            continue  # it joined before this group
        inter = _join(comm, Path(directory) / f"port.{joining}", accept=own != joining)
        merged = inter.Merge(own == joining)
        _check_sum(merged)
        joined = merged.bcast([*joined, joining], root=0)
        staying = merged.Split(MPI.UNDEFINED if own == leaver else 0, merged.rank)
        merged.Free()
        inter.Disconnect()
        comm.Free()
        if own == leaver:
            return
        comm = MPI.Intracomm(staying)
    _check_sum(comm)
    if comm.rank == 0:
        _print(joined=joined, size=comm.size)
    comm.Free()


def pair() -> None:
    """Collective over COMM_WORLD of two ranks. Measure the messages between them.

    Prints the latency, half the median time of an exchange of 8 bytes (s), and the bandwidth of
    messages of 16 MiB (bytes/s).
    """
    comm, other = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank
    small = sorted(_exchange_s(comm, other, bytearray(8)) for _ in range(_EXCHANGES))
    large = min(_exchange_s(comm, other, bytearray(_LARGE)) for _ in range(_LARGE_EXCHANGES))
    if comm.rank == 0:
        _print(latency_s=small[len(small) // 2] / 2, bytes_per_s=2 * _LARGE / large)


def _exchange_s(comm: MPI.Intracomm, other: int, buffer: bytearray) -> float:
    """Collective over two ranks. Send a buffer to and fro; return the time of that, seconds."""
    began = MPI.Wtime()
    if comm.rank == 0:
        comm.Send(buffer, other)
        comm.Recv(buffer, other)
    else:
        comm.Recv(buffer, other)
        comm.Send(buffer, other)
    return MPI.Wtime() - began


def _join(comm: MPI.Intracomm, port_file: Path, accept: bool) -> MPI.Intercomm:
    """Collective over comm. Accept a group or connect to one; the port is in a file."""
    if not accept:
        while comm.rank == 0 and not port_file.exists():
            time.sleep(0.01)
        return comm.Connect(port_file.read_text() if comm.rank == 0 else "")
    port = MPI.Open_port() if comm.rank == 0 else ""
    if comm.rank == 0:
        draft = port_file.with_suffix(".new")
        draft.write_text(port)
        draft.rename(port_file)  # a reader never finds an incomplete file
    inter = comm.Accept(port)
    if comm.rank == 0:
        MPI.Close_port(port)
    return inter


def _check_sum(comm: MPI.Intracomm) -> None:
    """Collective over comm. Raise an error if a sum over the ranks is wrong."""
    total, expected = comm.allreduce(comm.rank), comm.size * (comm.size - 1) // 2
    if total != expected:
        raise ReshapeError(f"the sum over {comm.size} ranks gave {total} instead of {expected}")


def _print(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


PROGRAMS: dict[str, Callable[..., None]] = {
    program.__name__: program for program in (library, world, groups, pair)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
