"""The mpiexec that starts MPI programs, and their environment.

If mpiexec and mpi4py belong to different MPI libraries, mpiexec starts N programs of size 1 and
reports success. The mpiexec beside the running interpreter is therefore preferred, because it was
installed with the same MPI library.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from reshape.errors import ReshapeError

# Variables by which hydra and the MPI library describe a world to its processes, and those of a
# Slurm allocation, on all nodes of which mpiexec would start processes.
_WORLD_PREFIXES = ("PMI", "HYDRA", "HYDI", "MPI_LOCAL", "MPIR", "SLURM_", "SLURMD_")
_USER_PREFIXES = ("MPIR_CVAR_", "SLURM_CONF")  # settings of the user, which are kept


def mpiexec_path(environment: Mapping[str, str] | None = None) -> Path:
    """Find mpiexec: the one beside the running interpreter, else the first on PATH.

    Parameters
    ----------
    environment : contains PATH; the environment of this process if None.

    Raises
    ------
    ReshapeError : there is no mpiexec in either place.
    """
    # sys.executable is not resolved: in a virtual environment it is a link that leads out of it.
    beside = Path(sys.executable).absolute().parent
    path = (os.environ if environment is None else environment).get("PATH", "")
    program = shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec", path=path)
    if program is None:
        raise ReshapeError(
            f"no mpiexec in {beside} or on PATH; install the MPI beside this Python by "
            f"'{sys.executable} -m pip install mpich mpi4py', or add your mpiexec to PATH"
        )
    return Path(program)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment without the variables that bind a process to its mpiexec.

    With them, an mpiexec that is started by a process under another mpiexec would use the outer
    world; with those of a Slurm allocation it would start processes on other nodes. Settings of the
    user (``MPIR_CVAR_*``, ``SLURM_CONF``) are kept.
    """
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_USER_PREFIXES) or not name.startswith(_WORLD_PREFIXES)
    }
