"""Copy a product of runs between a local array and a message, or between two local arrays.

Runs that lie contiguous on both sides are copied by the compiled `redistribution.copies.kernel`.
Without it, and for all others, NumPy does it: a family of runs along an axis is two strided
dimensions (repetitions, elements), so a product of families is one strided view of 2n dimensions on
either side. Elements are moved as raw bytes: any dtype of fixed size, padding included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import accumulate
from operator import is_, setitem
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from redistribution.copies import kernel
from redistribution.copies.buffers import Bytes
from redistribution.plan import Order, Transfer
from redistribution.plans.runs import Run

Place: TypeAlias = Literal["source", "target", "message"]

# Runs of fewer bytes on average are left to NumPy, whose loops over single elements are faster.
KERNEL_BYTES = 32

# Arrays from this size on are written past the caches, as nothing of them would be left there by
# the time it is read. Messages are not: they are soon read by MPI. Both are fetched ahead.
LARGE_BYTES = 1 << 21

# Runs up to this many bytes that are contiguous on both sides are moved as one opaque element,
# which is up to four times as fast as a short inner loop and never slower.
FUSED_BYTES = 4096

# From this many families of runs on along a contiguous axis, each of hardly more than one run and
# the runs not too short, they are moved as the fields of structured elements: up to three times as
# fast. With shorter runs or many repetitions, strided views are faster.
FEWEST_FAMILIES = 4
MOST_REPEATS = 4
FIELD_BYTES = 64
MOST_FIELDS = 512

# NumPy counts the bytes of an element in 32 bits.
FURTHEST_BYTES = 1 << 30


class Region(NamedTuple):
    """Memory that an n-d array occupies, and how.

    Attributes
    ----------
    memory : (bytes,) uint8, a view from the first to the last byte of the array.
    origin : offset in bytes of element (0, ..., 0).
    strides : bytes from one element to the next along each axis.
    place : which starts and steps of a `Run` apply to it.
    """

    memory: Bytes
    origin: int
    strides: tuple[int, ...]
    place: Place


class Held:
    """Arrays that are kept, to tell whether others are the same and lie where they lay."""

    def __init__(self, *arrays: NDArray[Any] | None) -> None:
        self.arrays = arrays
        self.nbytes = sum(0 if array is None else array.nbytes for array in arrays)
        self._geometry = _geometry(arrays)

    def are(self, *arrays: NDArray[Any] | None) -> bool:
        """Whether these are the arrays, with shape, strides, dtype and flags as they were."""
        return (
            len(arrays) == len(self.arrays)
            and all(map(is_, arrays, self.arrays))
            and _geometry(arrays) == self._geometry
        )


def _geometry(arrays: Iterable[NDArray[Any] | None]) -> list[Any]:
    return [(x.shape, x.strides, x.dtype, x.flags.writeable) for x in arrays if x is not None]


def of_array(array: NDArray[Any] | None, place: Place) -> Region:
    """Region of an array with any strides; an empty region if there is no element."""
    if array is None or array.nbytes == 0:
        return Region(np.empty(0, np.uint8), 0, (0,) * (0 if array is None else array.ndim), place)
    if array.flags.c_contiguous:
        return Region(array.reshape(-1).view(np.uint8), 0, array.strides, place)
    if array.flags.f_contiguous:
        return Region(array.T.reshape(-1).view(np.uint8), 0, array.strides, place)
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
    return Region(as_strided(first, (span,), (1,)), origin, array.strides, place)


def of_message(transfer: Transfer, memory: Bytes, itemsize: int, order: Order) -> Region:
    """Region of the message of ``transfer`` in ``memory``, elements in C or Fortran order."""
    extents = transfer.shape if order == "F" else transfer.shape[::-1]
    strides = tuple(accumulate(extents[:-1], lambda x, y: x * y, initial=itemsize))
    return Region(memory, 0, strides if order == "F" else strides[::-1], "message")


class Copy(NamedTuple):
    """What is to be copied from one region to another, which must not overlap it."""

    transfer: Transfer
    source: Region
    target: Region


def copy(itemsize: int, *copies: Copy) -> None:
    """Make all ``copies``. No temporary memory is used."""
    for action in actions(itemsize, *copies):
        action()


def actions(itemsize: int, *copies: Copy) -> Iterator[Callable[[], None]]:
    """What `copy` does, to be done as often as wanted while the regions stay where they are."""
    products = []
    for transfer, source, target in copies:
        families = _families(transfer, itemsize, source, target)
        if families is not None:
            products.append(
                kernel.Product(
                    families,
                    source.memory.ctypes.data + source.origin,
                    target.memory.ctypes.data + target.origin,
                    streaming=target.place == "target" and target.memory.nbytes >= LARGE_BYTES,
                    fetching=source.memory.nbytes >= LARGE_BYTES,
                )
            )
            continue
        for to, fro in views(transfer, itemsize, source, target):
            # A third of the overhead of np.copyto, which counts where boxes are many and small.
            yield partial(setitem, to, ..., fro)
    if products:
        yield kernel.bind(products)


def views(
    transfer: Transfer, itemsize: int, source: Region, target: Region
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs of strided views, target and source; copying each pair copies ``transfer``."""
    memory, to_memory = source.memory, target.memory
    rows = _rows(transfer, itemsize, source, target)
    for size, shape, offset, strides, to_offset, to_strides in _boxes(
        transfer, itemsize, source, target, rows
    ):
        dtype, to_dtype = (rows.dtype, rows.to_dtype) if rows else (_element(size), _element(size))
        yield (
            np.ndarray(shape, to_dtype, to_memory, to_offset, to_strides),
            np.ndarray(shape, dtype, memory, offset, strides),
        )


_NONE: tuple[tuple[int, ...], ...] = ((), (), ())


def _families(
    transfer: Transfer, itemsize: int, source: Region, target: Region
) -> list[NDArray[np.int64]] | None:
    """Families of a `kernel.Product`; None if NumPy copies faster or alone."""
    if kernel.compiled is None or len(transfer.runs) > kernel.MOST_AXES:
        return None
    axes = sorted(range(len(transfer.runs)), key=lambda axis: -abs(target.strides[axis]))
    last = _contiguous(axes, transfer, itemsize, source, target)
    if last is None:
        return None
    # Whole rows that follow one another are runs of many rows.
    unit, start, to_start = itemsize, 0, 0
    while len(axes) > 1 and len(runs := transfer.runs[last]) == 1 and runs[0].repeats == 1:
        whole = unit * transfer.shape[last]
        rest = [axis for axis in axes if axis != last]
        outer = _contiguous(rest, transfer, whole, source, target)
        if outer is None:
            break
        start += unit * start_and_step(runs[0], source.place)[0]
        to_start += unit * start_and_step(runs[0], target.place)[0]
        axes, last, unit = rest, outer, whole
    runs = transfer.runs[last]
    if unit * transfer.shape[last] < KERNEL_BYTES * sum(run.repeats for run in runs):
        return None
    axes.remove(last)
    found = [
        _table(
            transfer.runs[axis],
            1 if axis != last else unit,
            source.strides[axis],
            target.strides[axis],
            source.place,
            target.place,
        )
        for axis in (*axes, last)
    ]
    if start or to_start:
        found[0] = found[0] + np.array([0, 0, start, 0, 0, to_start, 0, 0])
    return found


def _contiguous(
    axes: list[int], transfer: Transfer, unit: int, source: Region, target: Region
) -> int | None:
    """The longest of ``axes`` along which neighbours lie ``unit`` bytes apart on both sides."""
    found = [axis for axis in axes if source.strides[axis] == target.strides[axis] == unit]
    return max(found, key=lambda axis: transfer.shape[axis], default=None)


@lru_cache(maxsize=64)
def _table(
    runs: tuple[Run, ...], unit: int, stride: int, to_stride: int, place: Place, to_place: Place
) -> NDArray[np.int64]:
    """Families of one axis of a `kernel.Product`, lengths in units."""
    table = np.empty((len(runs), kernel.FIELDS), np.int64)
    for row, run in zip(table, runs, strict=True):
        (first, step), (to_first, to_step) = (
            start_and_step(run, where) for where in (place, to_place)
        )
        row[:] = (
            run.length * unit,
            run.repeats,
            first * stride,
            step * stride,
            stride,
            to_first * to_stride,
            to_step * to_stride,
            to_stride,
        )
    return table


# Bytes of an element, shape, offset and strides in the source, offset and strides in the target.
_Box: TypeAlias = tuple[int, tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]


def _boxes(
    transfer: Transfer, itemsize: int, source: Region, target: Region, rows: _Rows | None
) -> list[_Box]:
    """One strided view on each side for each product, over the axes, of families of runs."""
    boxes: list[_Box] = [(itemsize, (), source.origin, (), target.origin, ())]
    for axis, (runs, stride, to_stride) in enumerate(
        zip(transfer.runs, source.strides, target.strides, strict=True)
    ):
        if rows and axis == rows.axis:
            boxes = [
                (size, shape, at + rows.start, strides, to + rows.to_start, to_strides)
                for size, shape, at, strides, to, to_strides in boxes
            ]
            continue
        fused_bytes = FUSED_BYTES if stride == to_stride == itemsize and not rows else 0
        along = []
        for run in runs:
            start, step = start_and_step(run, source.place)
            to_start, to_step = start_and_step(run, target.place)
            fused = run.length if run.length * itemsize <= fused_bytes else 1
            shape, steps, to_steps = _NONE
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


class _Rows(NamedTuple):
    """All runs along the contiguous axis as one structured element on either side.

    NumPy then moves them in one compiled loop over the fields. Blocks without a common measure,
    as 31 and 32, need it: their families are as many as their runs.

    Attributes
    ----------
    axis : the axis that the elements span.
    dtype, to_dtype : source and target element; field k is run k, padding is what lies between.
    start, to_start : bytes from the first index of the axis to the first run.
    """

    axis: int
    dtype: np.dtype[Any]
    to_dtype: np.dtype[Any]
    start: int
    to_start: int


def _rows(transfer: Transfer, itemsize: int, source: Region, target: Region) -> _Rows | None:
    """The runs of the contiguous axis as fields, if that is the fast way to move them."""
    strides = list(zip(source.strides, target.strides, strict=True))
    if (itemsize, itemsize) not in strides:
        return None
    axis = strides.index((itemsize, itemsize))
    runs = transfer.runs[axis]
    if len(runs) < FEWEST_FAMILIES:
        return None
    fields = sum(run.repeats for run in runs)
    if fields > min(MOST_FIELDS, MOST_REPEATS * len(runs)):
        return None
    if not FIELD_BYTES * fields <= transfer.shape[axis] * itemsize <= FUSED_BYTES * fields:
        return None
    return _structured(axis, runs, itemsize, source.place, target.place)


@lru_cache(maxsize=64)
def _structured(
    axis: int, runs: tuple[Run, ...], itemsize: int, place: Place, to_place: Place
) -> _Rows | None:
    """`_Rows` of ``runs``; None if they lie too far apart for one element."""
    sides = []
    # Names that differ keep NumPy from copying elements of equal form whole, padding included.
    for name, where in (("source", place), ("target", to_place)):
        fields = []
        for run in runs:
            first, step = start_and_step(run, where)
            fields += [((first + k * step) * itemsize, run.length) for k in range(run.repeats)]
        start = min(offset for offset, _ in fields)
        if max(offset for offset, _ in fields) - start > FURTHEST_BYTES:
            return None
        described: Any = {
            "names": [f"{name}{k}" for k in range(len(fields))],
            "formats": [f"V{length * itemsize}" for _, length in fields],
            "offsets": [offset - start for offset, _ in fields],
        }
        sides.append((np.dtype(described), start))
    (dtype, start), (to_dtype, to_start) = sides
    return _Rows(axis, dtype, to_dtype, start, to_start)


def start_and_step(run: Run, place: Place) -> tuple[int, int]:
    """Where a family begins along its axis in ``place``, and how far its repetitions lie apart."""
    if place == "source":
        return run.source, run.source_step
    if place == "target":
        return run.target, run.target_step
    return run.message, run.length


@lru_cache(maxsize=256)
def _element(itemsize: int) -> np.dtype[Any]:
    """Dtype that copies ``itemsize`` bytes at once."""
    # Void of any size moves by memmove; the sizes of machine words have loops of their own.
    return np.dtype(f"u{itemsize}") if itemsize in (1, 2, 4, 8) else np.dtype(f"V{itemsize}")
