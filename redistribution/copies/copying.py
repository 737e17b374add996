"""Copy a product of runs between a local array and a message, or between two local arrays.

The compiled `redistribution.copies.kernel` copies runs that are contiguous on both sides. NumPy
copies all others, and everything if there is no kernel (`redistribution.copies.strided`). Elements
are copied as raw bytes: any dtype of fixed size, padding included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from operator import setitem
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redistribution.copies import kernel
from redistribution.copies.regions import COLUMNS, Region, Role, start_and_step
from redistribution.copies.strided import views
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
        for to, fro in views(transfer, itemsize, source, target):
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
