"""Regions: one description of memory for local arrays and for messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from redistribution.copies.buffers import Bytes
from redistribution.layout import MemoryOrder
from redistribution.runs import Run, Transfer

Role: TypeAlias = Literal["source", "target", "message"]


class Region(NamedTuple):
    """The memory and the strides of an n-d array.

    Attributes
    ----------
    memory : (bytes,) uint8, a view from the first to the last byte of the array.
    origin : offset in bytes of element (0, ..., 0).
    strides : bytes from one element to the next along each axis.
    role : which starts and steps of a `Run` apply to the region.
    """

    memory: Bytes
    origin: int
    strides: tuple[int, ...]
    role: Role


def array_region(array: NDArray[Any] | None, role: Role) -> Region:
    """Region of an array with any strides; an empty region if there is no element."""
    if array is None or array.nbytes == 0:
        return Region(np.empty(0, np.uint8), 0, (0,) * (0 if array is None else array.ndim), role)
    if array.flags.c_contiguous:
        return Region(array.reshape(-1).view(np.uint8), 0, array.strides, role)
    if array.flags.f_contiguous:
        return Region(array.T.reshape(-1).view(np.uint8), 0, array.strides, role)
    flips = tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)
    lowest = array[flips]
    origin = sum(
        -stride * (extent - 1)
        for stride, extent in zip(array.strides, array.shape, strict=True)
        if stride < 0
    )
    span = array.itemsize + sum(
        stride * (extent - 1) for stride, extent in zip(lowest.strides, lowest.shape, strict=True)
    )
    first = lowest[(slice(0, 1),) * array.ndim].reshape(1).view(np.uint8)
    return Region(as_strided(first, (span,), (1,)), origin, array.strides, role)


def message_region(transfer: Transfer, memory: Bytes, itemsize: int, order: MemoryOrder) -> Region:
    """Region of the message of ``transfer`` in ``memory``, elements in C or Fortran order."""
    return contiguous_region(transfer.shape, memory, itemsize, order, "message")


def contiguous_region(
    shape: Sequence[int], memory: Bytes, itemsize: int, order: MemoryOrder, role: Role
) -> Region:
    """Region of ``memory`` that is filled without gaps, in C or Fortran order."""
    extents = shape if order == "F" else shape[::-1]
    strides = tuple(accumulate(extents[:-1], lambda x, y: x * y, initial=itemsize))
    return Region(memory, 0, strides if order == "F" else strides[::-1], role)


# Positions, in a `Run`, of the first index of a family and of the step to the next repetition.
COLUMNS: dict[Role, tuple[int, int]] = {"source": (2, 3), "target": (4, 5), "message": (6, 0)}


def start_and_step(run: Run, role: Role) -> tuple[int, int]:
    """First index of a family along its axis in a region, and the step to the next repetition."""
    first, step = COLUMNS[role]
    return run[first], run[step]
