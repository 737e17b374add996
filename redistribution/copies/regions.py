"""Regions: one description of memory for local arrays and for messages. Needs no MPI.

The message of a transfer lies in byte ranges of an array. A run may end in the source and continue
in the target, or the other way round: a row that was dealt out in blocks is whole again on the
other side. So the contiguous ranges of one side are longer than the runs that both sides have in
common, often by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds
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
    low, high = byte_bounds(array)
    lowest = tuple(slice(-1, None) if stride < 0 else slice(0, 1) for stride in array.strides)
    first = array[lowest].reshape(1).view(np.uint8)
    memory = as_strided(first, (high - low,), (1,))
    return Region(memory, array.ctypes.data - low, array.strides, role)


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


# ---------------------------------------------------------------- the byte ranges of a message


class RangeFamily(NamedTuple):
    """``repeats`` ranges of ``length``; the first at byte ``start``, then one every ``step`` bytes.

    The unit of ``length`` is bytes on the fastest axis. On any other axis it is the number of times
    that the ranges of all faster axes are repeated. Before the strides are applied, all units are
    indices of the axis.
    """

    start: int
    repeats: int
    step: int
    length: int


class ByteRanges(NamedTuple):
    """The message of a transfer in a region.

    Attributes
    ----------
    offset : bytes from the first byte of the region, to be added to all starts.
    axes : families along each axis, in the order of the message, the fastest axis first. If the
        message is contiguous along several axes, these are one family with one repetition.
    nbytes : length of the message.
    """

    offset: int
    axes: list[list[RangeFamily]]
    nbytes: int

    @classmethod
    def of(
        cls, transfer: Transfer, itemsize: int, region: Region, order: MemoryOrder
    ) -> ByteRanges:
        """Ranges of ``transfer`` in ``region``, elements taken in C or Fortran order."""
        along = [
            (stride, _index_ranges(runs, region.role))
            for runs, stride in zip(transfer.runs, region.strides, strict=True)
        ]
        if order == "C":
            along.reverse()
        offset, size, axes = region.origin, itemsize, []
        while along:
            stride, ranges = along[0]
            first = ranges[0]
            if len(ranges) > 1 or first.repeats > 1 or (first.length > 1 and stride != size):
                break
            offset += first.start * stride
            size *= first.length
            del along[0]
        if along and along[0][0] == size:
            stride, ranges = along.pop(0)
            axes.append([RangeFamily(a * size, n, b * size, c * size) for a, n, b, c in ranges])
        else:
            axes.append([RangeFamily(0, 1, size, size)])
        axes += [_slow_axis(stride, ranges) for stride, ranges in along]
        for families in axes:
            if len(families) == 1:
                offset += families[0].start
                families[0] = families[0]._replace(start=0)
        return cls(offset, axes, transfer.elements * itemsize)

    @property
    def number(self) -> int:
        """Number of ranges."""
        return math.prod(sum(family.repeats for family in families) for families in self.axes)

    @property
    def mean_bytes(self) -> float:
        """Mean length of a range."""
        return self.nbytes / self.number


def contiguous_message(
    transfer: Transfer, itemsize: int, region: Region, order: MemoryOrder
) -> Bytes | None:
    """Bytes of ``region`` that are the message of ``transfer``; None if it is not contiguous."""
    ranges = ByteRanges.of(transfer, itemsize, region, order)
    return region.memory[ranges.offset :][: ranges.nbytes] if ranges.number == 1 else None


def _index_ranges(runs: tuple[Run, ...], role: Role) -> list[RangeFamily]:
    """Runs of an axis in a region of this role, consecutive ones merged."""
    ranges: list[RangeFamily] = []
    for run in runs:
        start, step = start_and_step(run, role)
        new = RangeFamily(start, run.repeats, step, run.length)
        if step == run.length:
            new = RangeFamily(start, 1, step, run.length * run.repeats)
        last = ranges[-1] if ranges else None
        if last and last.repeats == new.repeats == 1 and last.start + last.length == start:
            ranges[-1] = last._replace(length=last.length + new.length)
        else:
            ranges.append(new)
    return ranges


def _slow_axis(stride: int, ranges: list[RangeFamily]) -> list[RangeFamily]:
    """Families of all indices of an axis that is not the fastest."""
    families = []
    for start, repeats, step, length in ranges:
        if length == 1:
            families.append(RangeFamily(start * stride, repeats, step * stride, 1))
        else:
            families += [
                RangeFamily((start + k * step) * stride, length, stride, 1) for k in range(repeats)
            ]
    return families
