"""ScaLAPACK's pdgemr2d in the processes, on the MPI and between the arrays of this benchmark.

The ScaLAPACK of the Linux distribution is loaded by ctypes. It requires an MPI library by the name
libmpich.so.12. A directory in which this name links to the library of mpi4py makes both share one
MPI, which the MPICH ABI allows. `directory_for` makes it before the ranks start.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path
from typing import Any

import numpy as np

from redistribution import BlockCyclic

LIBRARY = "scalapack-mpich"
SONAME = "libmpich.so.12"


def directory_for(mpi: Path, where: Path) -> Path | None:
    """Make a directory for LD_LIBRARY_PATH that offers ``mpi`` to ScaLAPACK.

    Returns
    -------
    None if ScaLAPACK or the library is absent.
    """
    if not ctypes.util.find_library(LIBRARY) or not mpi.exists():
        return None
    (where / SONAME).symlink_to(mpi)
    return where


class Pdgemr2d:
    """Collective over comm. One prepared move between arrays in Fortran order and any two grids.

    Raises
    ------
    OSError : ScaLAPACK is absent, or would load another MPI.
    """

    def __init__(
        self,
        comm: Any,
        source: BlockCyclic,
        target: BlockCyclic,
        a: np.ndarray | None,
        b: np.ndarray | None,
    ) -> None:
        from mpi4py import MPI

        self.scalapack = _load()
        handle = self.scalapack.Csys2blacs_handle(ctypes.c_int(MPI._handleof(comm)))
        self.contexts = [
            _grid(self.scalapack, handle, *shape)
            for shape in ((1, comm.size), source.grid, target.grid)
        ]
        all_ranks, of_a, of_b = self.contexts
        self.arguments = (
            *source.shape,
            *_array(a, source, of_a),
            *_array(b, target, of_b),
            ctypes.c_int(all_ranks),
        )
        self.arrays = a, b

    def run(self) -> None:
        """Collective over the communicator. Move."""
        self.scalapack.Cpdgemr2d(*self.arguments)

    def free(self) -> None:
        """Collective over the communicator. Free the grids."""
        for context in self.contexts:
            if context >= 0:
                self.scalapack.Cblacs_gridexit(ctypes.c_int(context))


def _load() -> ctypes.CDLL:
    name = ctypes.util.find_library(LIBRARY)
    if name is None:
        raise OSError(f"lib{LIBRARY} is not installed")
    library = ctypes.CDLL(name)
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps if "libmpi" in line}
    if len(mapped) != 1:
        raise OSError(f"lib{LIBRARY} does not share the MPI of mpi4py: {sorted(mapped)}")
    return library


def _grid(library: ctypes.CDLL, handle: int, rows: int, columns: int) -> int:
    """BLACS context of the first rows * columns ranks, row-major; -1 on the other ranks."""
    context = ctypes.c_int(handle)
    library.Cblacs_gridinit(ctypes.byref(context), b"Row", rows, columns)
    return context.value


def _array(array: np.ndarray | None, layout: BlockCyclic, context: int) -> tuple[Any, ...]:
    """The five arguments that describe one side: address, first row and column, descriptor."""
    rows = max(1, 0 if array is None else array.shape[0])
    descriptor = (ctypes.c_int * 9)(1, context, *layout.shape, *layout.block, 0, 0, rows)
    address = ctypes.c_void_p(None if array is None else array.ctypes.data)
    return address, ctypes.c_int(1), ctypes.c_int(1), descriptor
