"""The groups of a job that restarts connect to each other.

A group is one world and can only leave as a whole. A job therefore restarts with the groups that
it had; otherwise it could not contract. The first group accepts the others in turn, and those that
have joined accept with it. The names of the ports are files in the shared-memory folder of the job,
beside the restart point.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from reshape.data.job_context import JobContext
from reshape.errors import ReshapeError
from reshape.private_folder import open_file, open_folder, remove_file
from reshape.resizing.agree import wait_on_first_rank
from reshape.resizing.transaction import accept, connect

_PORT_FILE = "port-of-group-"
_LOOK_S = 0.02
#: Seconds that a group waits for the port of the others, which start at the same time.
PORT_S = 120.0


def assemble(job: JobContext, sizes: Mapping[int, int]) -> None:
    """Collective over the job.comm of all groups. Make job.comm that of the whole job.

    If a group ends, the service ends the others.

    Parameters
    ----------
    sizes : number of processes of each group, the oldest group first.

    Raises
    ------
    ReshapeError : a group has another number of processes, no group accepts this one within
        `PORT_S`, or the folder cannot be used.
    """
    assert job.folder is not None
    folder, own = job.folder, job.comm
    if sizes.get(job.group) != own.size:
        raise ReshapeError(
            f"group {job.group} restarts with {own.size} processes, expected {sizes}: mpi4py is"
            " bound to another MPI than the mpiexec in use; see 'reshape doctor'"
        )
    ranks: list[int] = []
    for group, size in sizes.items():
        is_earlier = job.group in ranks
        ranks += [group] * size
        if group == job.group and group != ranks[0]:
            port = wait_on_first_rank(own, partial(_await_port, folder, group))
            merged = connect(job, port)
        elif is_earlier:
            merged = accept(job, group, partial(_write_port, folder))
        else:
            continue
        job.comm.Free()
        job.comm, job.groups = merged, tuple(ranks)
    if job.comm.rank == 0:
        _remove_ports(folder)


def _write_port(folder: Path, group: int, port: str) -> None:
    with open_folder(folder, create=True) as directory:
        draft, name = f"{_PORT_FILE}{group}.new", f"{_PORT_FILE}{group}"
        remove_file(directory, draft)
        descriptor = open_file(directory, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w") as file:
            file.write(port)
        os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)


def _await_port(folder: Path, group: int) -> str:
    until = time.monotonic() + PORT_S
    while time.monotonic() < until:
        try:
            with open_folder(folder) as directory:
                descriptor = open_file(directory, f"{_PORT_FILE}{group}", os.O_RDONLY)
                with os.fdopen(descriptor) as file:
                    return file.read()
        except FileNotFoundError:
            time.sleep(_LOOK_S)
    raise ReshapeError(
        f"cannot restart: no group of the job accepts group {group} within {PORT_S:g} s; the groups"
        " of a job that restarts must be on one host"
    )


def _remove_ports(folder: Path) -> None:
    with open_folder(folder) as directory:
        for name in os.listdir(directory):
            if name.startswith(_PORT_FILE):
                remove_file(directory, name)
