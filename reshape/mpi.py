"""Starting MPI programs: which mpiexec, and in which environment.

An mpiexec of one MPI with mpi4py bound to another starts N programs of size 1 and reports success.
So the mpiexec beside the running interpreter comes first: it was installed with the same MPI.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from reshape.errors import ReshapeError

# What hydra and the MPI library tell the processes of one world about that world.
_WORLD_PREFIXES = ("PMI", "HYDRA", "HYDI", "MPI_LOCAL", "MPIR")
_USER_PREFIX = "MPIR_CVAR_"  # tuning by the user, to be handed on


def mpiexec_path(environment: Mapping[str, str] | None = None) -> Path:
    """Find mpiexec: the one beside the running interpreter, else the first on PATH.

    Parameters
    ----------
    environment : where PATH is read from; the environment of this process if None.

    Raises
    ------
    ReshapeError : there is none in either place.
    """
    # sys.executable is not resolved: in a virtual environment it is a link that leads out of it.
    beside = Path(sys.executable).absolute().parent
    path = (os.environ if environment is None else environment).get("PATH", "")
    found = shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec", path=path)
    if found is None:
        raise ReshapeError(
            f"no mpiexec in {beside} or on PATH; install the MPI beside this Python by "
            f"'{sys.executable} -m pip install mpich mpi4py', or put your site's on PATH"
        )
    return Path(found)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment without the variables that tie a process to the mpiexec it runs under.

    With them, an mpiexec started by a process that itself runs under mpiexec would mistake the
    outer world for its own. Tuning by the user (``MPIR_CVAR_*``) stays.
    """
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_USER_PREFIX) or not name.startswith(_WORLD_PREFIXES)
    }
