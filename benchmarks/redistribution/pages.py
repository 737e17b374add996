"""Arrays on pages of a known kind, and the memory that a move needs besides them."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from redistribution.copies import buffers


def mapped(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Array in Fortran order in a file in shared memory."""
    size = 8 * int(np.prod(shape))
    if size == 0:
        return np.empty(shape, order="F")
    with path.open("a+b") as file:
        file.truncate(size)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return np.ndarray(shape, float, mmap.mmap(file.fileno(), size, flags), order="F")


def on_huge_pages(shape: tuple[int, ...]) -> np.ndarray:
    """Array of zeros in Fortran order, on huge pages if the system has them."""
    page = 1 << 21
    memory = mmap.mmap(-1, 8 * int(np.prod(shape)) + page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    first = -np.frombuffer(memory, np.uint8).ctypes.data % page
    array = np.ndarray(shape, float, memory, first, order="F")
    array[...] = 0
    return array


def extra_memory(comm: Any, action: Callable[[], None], part: int) -> tuple[float, float]:
    """Collective over comm. Most memory that an action takes on a rank.

    Returns
    -------
    MB, and multiples of ``part`` bytes.
    """
    from mpi4py import MPI

    buffers.clear()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = peak_resident()
    comm.Barrier()
    action()
    extra = peak_resident() - before
    return comm.allreduce(extra / 1e6, MPI.MAX), comm.allreduce(extra / max(part, 1), MPI.MAX)


def peak_resident() -> int:
    """Peak of the resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
