"""The move by shared memory: a target process copies its part out of the source arrays.

Where processes map one another's memory, a move needs no messages: every target process copies
each element of its part once, from the source array that holds it. Needs no MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.copies.copying import Copy, copy
from redistribution.copies.regions import array_region
from redistribution.routes import Routes

Sources: TypeAlias = Mapping[int, NDArray[Any]] | Callable[[int], NDArray[Any]]


def gather(routes: Routes, process: int, sources: Sources, b: NDArray[Any]) -> None:
    """Fill ``b`` with the part of target ``process``; see `redistribution.Plan.gather`."""
    _check_target(routes, process, b)
    find = sources if callable(sources) else sources.__getitem__
    transfers = routes.incoming(routes.target_ranks[process])
    arrays = [find(routes.source_process[transfer.peer]) for transfer in transfers]
    if routes.keeps(routes.target_ranks[process]) and all(is_same_memory(a, b) for a in arrays):
        return
    copies, target = [], array_region(b, "target")
    for transfer, a in zip(transfers, arrays, strict=True):
        check_source(routes, routes.source_process[transfer.peer], a, b)
        copies.append(Copy(transfer, array_region(a, "source"), target))
    copy(b.dtype.itemsize, *copies)


def _check_target(routes: Routes, process: int, b: NDArray[Any]) -> None:
    """Raise ValueError if ``b`` cannot be the local array of a target process."""
    expected = routes.target.local_shape(process)
    if b.shape != expected:
        raise ValueError(
            f"target process {process}: expected an array of shape {expected}, got {b.shape}"
        )
    if b.dtype.hasobject:
        raise ValueError(f"target process {process}: dtype {b.dtype} holds objects")
    if not b.flags.writeable:
        raise ValueError(f"target process {process}: the target array is read-only")


def is_same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether each element of ``a`` is the same memory as that of ``b``."""
    same_shape = (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    return a is b or (same_shape and a.ctypes.data == b.ctypes.data)


def check_source(routes: Routes, process: int, a: NDArray[Any], b: NDArray[Any]) -> None:
    """Raise ValueError if ``a`` cannot be the local array of a source process."""
    expected = routes.source.local_shape(process)
    if a.shape != expected:
        raise ValueError(
            f"source process {process}: expected an array of shape {expected}, got {a.shape}"
        )
    if a.dtype != b.dtype:
        raise ValueError(
            f"source process {process} has dtype {a.dtype}, the target array has dtype {b.dtype}"
        )
    if np.may_share_memory(a, b):
        raise ValueError(f"source process {process}: its array overlaps the target array")
