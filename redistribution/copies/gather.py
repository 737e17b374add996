"""The move by shared memory: a target process copies its part out of the source arrays.

Where processes map one another's memory, a move needs no messages: every target process copies
each element of its part once, from the source array that holds it. Needs no MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.copies.copying import Copy, bind
from redistribution.copies.regions import KeptArrays, array_region
from redistribution.routes import Routes
from redistribution.tuning import tuning

Sources: TypeAlias = Mapping[int, NDArray[Any]] | Callable[[int], NDArray[Any]]


#: The target and source arrays of a gather, and the copies that were prepared for them.
PreparedGather: TypeAlias = tuple[KeptArrays, list[Callable[[], None]]]


def gather(
    routes: Routes,
    process: int,
    sources: Sources,
    b: NDArray[Any],
    last: PreparedGather | None = None,
) -> PreparedGather | None:
    """Fill ``b`` with the part of target ``process`` directly from the source arrays.

    Parameters
    ----------
    routes, process, sources, b : as in `redistribution.Plan.gather`.
    last : result of the last call for the same routes and process. If the arrays are the same, its
        copies are made again.

    Returns
    -------
    ``last`` for the next call; None if the arrays are too large to be kept.

    Raises
    ------
    ValueError : as in `redistribution.Plan.gather`.
    """
    if last is None:
        _check_target(routes, process, b)
    find = sources if callable(sources) else sources.__getitem__
    transfers = routes.incoming(routes.target_ranks[process])
    arrays = [find(routes.source_process[transfer.peer]) for transfer in transfers]
    if last is not None:
        if last[0].match(b, *arrays):
            for copy in last[1]:
                copy()
            return last
        _check_target(routes, process, b)
    if routes.keeps(routes.target_ranks[process]) and all(is_same_memory(a, b) for a in arrays):
        return None
    kept, prepared = KeptArrays(b, *arrays), list[Callable[[], None]]()
    is_small = kept.nbytes <= tuning.kept_gather_bytes
    target = array_region(b, "target")
    copies = []
    for transfer, a in zip(transfers, arrays, strict=True):
        check_source(routes, routes.source_process[transfer.peer], a, b)
        copies.append(Copy(transfer, array_region(a, "source"), target))
    for copy in bind(b.dtype.itemsize, *copies):
        copy()
        if is_small:
            prepared.append(copy)
    return (kept, prepared) if is_small else None


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
