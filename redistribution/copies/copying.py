"""Copy a product of runs between a local array and a message, or between two local arrays.

The compiled `redistribution.copies.kernel` copies runs that are contiguous on both sides. NumPy
copies all others, and everything if there is no kernel. A family of runs along an axis is two
strided dimensions (repetitions, elements), so NumPy copies a product of families of n axes as one
strided view of 2n dimensions of either region. Elements are copied as raw bytes: any dtype of fixed
size, padding included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from operator import setitem
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.copies import kernel
from redistribution.copies.regions import COLUMNS, Region, Role, start_and_step
from redistribution.runs import Run, Transfer
from redistribution.tuning import tuning

# Bytes of a line of the caches.
LINE = 64


class Copy(NamedTuple):
    """A transfer to copy from one region to another. The regions must not overlap."""

    transfer: Transfer
    source: Region
    target: Region


def copy(itemsize: int, *copies: Copy) -> None:
    """Make all ``copies``. No temporary memory is used."""
    for action in bind(itemsize, *copies):
        action()


def bind(itemsize: int, *copies: Copy) -> Iterator[Callable[[], None]]:
    """Functions that make all ``copies`` when called, any number of times.

    They are valid as long as the memory of the regions is.
    """
    products = []
    for transfer, source, target in copies:
        families = _kernel_families(transfer, itemsize, source, target)
        if families is not None:
            is_large = target.memory.nbytes >= tuning.streamed_bytes
            products.append(
                kernel.Product(
                    families,
                    source.memory.ctypes.data + source.origin,
                    target.memory.ctypes.data + target.origin,
                    streaming=is_large and target.role == "target" and _fill_lines(families[-1]),
                    prefetching=source.memory.nbytes >= tuning.streamed_bytes,
                )
            )
            continue
        for to, fro in _views(transfer, itemsize, source, target):
            # This takes a third of the overhead of np.copyto, which matters for many small boxes.
            yield partial(setitem, to, ..., fro)
    if products:
        yield kernel.bind(products)


def _kernel_families(
    transfer: Transfer, itemsize: int, source: Region, target: Region
) -> list[NDArray[np.int64]] | None:
    """Families of a `kernel.Product`; None if NumPy is faster or there is no kernel."""
    if kernel.compiled is None or not tuning.use_kernel or len(transfer.runs) > kernel.MOST_AXES:
        return None
    axes = sorted(range(len(transfer.runs)), key=lambda axis: -abs(target.strides[axis]))
    last = _contiguous_axis(axes, transfer, itemsize, source, target)
    if last is None:
        return None
    # While the innermost axis is one run that fills whole rows, rows merge into longer runs.
    unit, start, to_start = itemsize, 0, 0
    while len(axes) > 1 and len(runs := transfer.runs[last]) == 1 and runs[0].repeats == 1:
        row = unit * transfer.shape[last]
        rest = [axis for axis in axes if axis != last]
        outer = _contiguous_axis(rest, transfer, row, source, target)
        if outer is None:
            break
        start += unit * start_and_step(runs[0], source.role)[0]
        to_start += unit * start_and_step(runs[0], target.role)[0]
        axes, last, unit = rest, outer, row
    runs = transfer.runs[last]
    if unit * transfer.shape[last] < tuning.kernel_run_bytes * sum(run.repeats for run in runs):
        return None
    axes.remove(last)
    rows = [
        _family_table(
            transfer.runs[axis],
            1 if axis != last else unit,
            source.strides[axis],
            target.strides[axis],
            source.role,
            target.role,
        )
        for axis in (*axes, last)
    ]
    if start or to_start:
        rows[0] = rows[0] + np.array([0, 0, start, 0, 0, to_start, 0, 0])
    return rows


def _fill_lines(families: NDArray[np.int64]) -> bool:
    """Whether runs of these families leave few lines to be completed by other runs.

    To write a part of a line past the caches takes as long as to write many lines.
    """
    length, repeats = families[:, 0], families[:, 1]
    is_long = length @ repeats >= tuning.streamed_run_bytes * repeats.sum()
    return bool(is_long or not (length % LINE).any())


def _contiguous_axis(
    axes: list[int], transfer: Transfer, unit: int, source: Region, target: Region
) -> int | None:
    """The longest of ``axes`` along which neighbours are ``unit`` bytes apart on both sides."""
    contiguous = [axis for axis in axes if source.strides[axis] == target.strides[axis] == unit]
    return max(contiguous, key=lambda axis: transfer.shape[axis], default=None)


@lru_cache(maxsize=64)
def _family_table(
    runs: tuple[Run, ...], unit: int, stride: int, to_stride: int, role: Role, to_role: Role
) -> NDArray[np.int64]:
    """Families of one axis of a `kernel.Product`, lengths in units."""
    along = np.array(runs, np.int64)
    table = np.empty((len(along), kernel.FIELDS), np.int64)
    table[:, 0] = along[:, 0] * unit
    table[:, 1] = along[:, 1]
    for column, side, bytes_apart in ((2, role, stride), (5, to_role, to_stride)):
        first, step = COLUMNS[side]
        table[:, column] = along[:, first] * bytes_apart
        table[:, column + 1] = along[:, step] * bytes_apart
        table[:, column + 2] = bytes_apart
    return table


# ---------------------------------------------------------------- copies by NumPy

# Bytes of an element, shape, offset and strides in the source, offset and strides in the target.
_Box: TypeAlias = tuple[int, tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]

_NO_DIMENSIONS: tuple[tuple[int, ...], ...] = ((), (), ())


def _views(
    transfer: Transfer, itemsize: int, source: Region, target: Region
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs of strided views (target, source); copying all pairs copies ``transfer``."""
    for size, shape, offset, strides, to_offset, to_strides in _boxes(
        transfer, itemsize, source, target
    ):
        dtype = _element(size)
        yield (
            np.ndarray(shape, dtype, target.memory, to_offset, to_strides),
            np.ndarray(shape, dtype, source.memory, offset, strides),
        )


def _boxes(transfer: Transfer, itemsize: int, source: Region, target: Region) -> list[_Box]:
    """One strided view of each region for every product, over the axes, of families of runs."""
    boxes: list[_Box] = [(itemsize, (), source.origin, (), target.origin, ())]
    for runs, stride, to_stride in zip(transfer.runs, source.strides, target.strides, strict=True):
        fused_bytes = tuning.fused_run_bytes if stride == to_stride == itemsize else 0
        along = []
        for run in runs:
            start, step = start_and_step(run, source.role)
            to_start, to_step = start_and_step(run, target.role)
            fused = run.length if run.length * itemsize <= fused_bytes else 1
            shape, steps, to_steps = _NO_DIMENSIONS
            if run.repeats > 1:
                shape, steps, to_steps = (run.repeats,), (step * stride,), (to_step * to_stride,)
            if run.length > fused:
                shape, steps, to_steps = (
                    (*shape, run.length),
                    (*steps, stride),
                    (*to_steps, to_stride),
                )
            along.append((fused, shape, start * stride, steps, to_start * to_stride, to_steps))
        boxes = [
            (
                size * fused,
                shape + more,
                at + start,
                strides + steps,
                to + to_start,
                to_strides + to_steps,
            )
            for size, shape, at, strides, to, to_strides in boxes
            for fused, more, start, steps, to_start, to_steps in along
        ]
    return boxes


@lru_cache(maxsize=256)
def _element(itemsize: int) -> np.dtype[Any]:
    """Dtype that copies ``itemsize`` bytes at once."""
    # NumPy copies void elements by memmove; sizes of machine words have faster loops.
    return np.dtype(f"u{itemsize}") if itemsize in (1, 2, 4, 8) else np.dtype(f"V{itemsize}")
