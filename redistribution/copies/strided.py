"""Copies by NumPy alone: pairs of strided views.

A family of runs along an axis is two strided dimensions (repetitions, elements), so a product of
families of n axes is one strided view of 2n dimensions of either region.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.copies.regions import Region, Role, start_and_step
from redistribution.runs import Run, Transfer
from redistribution.tuning import tuning

# NumPy stores the size of an element in 32 bits.
_MOST_ELEMENT_BYTES = 1 << 30

# Bytes of an element, shape, offset and strides in the source, offset and strides in the target.
_Box: TypeAlias = tuple[int, tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]

_NO_DIMENSIONS: tuple[tuple[int, ...], ...] = ((), (), ())


def views(
    transfer: Transfer, itemsize: int, source: Region, target: Region
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs of strided views (target, source); copying all pairs copies ``transfer``."""
    runs = _structured_runs(transfer, itemsize, source, target)
    for size, shape, offset, strides, to_offset, to_strides in _boxes(
        transfer, itemsize, source, target, runs
    ):
        dtype, to_dtype = (runs.dtype, runs.to_dtype) if runs else (_element(size), _element(size))
        yield (
            np.ndarray(shape, to_dtype, target.memory, to_offset, to_strides),
            np.ndarray(shape, dtype, source.memory, offset, strides),
        )


def _boxes(
    transfer: Transfer,
    itemsize: int,
    source: Region,
    target: Region,
    structured: _StructuredRuns | None,
) -> list[_Box]:
    """One strided view of each region for every product, over the axes, of families of runs."""
    boxes: list[_Box] = [(itemsize, (), source.origin, (), target.origin, ())]
    for axis, (runs, stride, to_stride) in enumerate(
        zip(transfer.runs, source.strides, target.strides, strict=True)
    ):
        if structured and axis == structured.axis:
            boxes = [
                (size, shape, at + structured.start, strides, to + structured.to_start, to_strides)
                for size, shape, at, strides, to, to_strides in boxes
            ]
            continue
        can_fuse = stride == to_stride == itemsize and not structured
        fused_bytes = tuning.fused_run_bytes if can_fuse else 0
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


class _StructuredRuns(NamedTuple):
    """All runs along the contiguous axis as the fields of one structured element.

    NumPy copies such elements in one compiled loop over the fields. This helps with blocks without
    a common divisor, for example 31 and 32, which have as many families as runs.

    Attributes
    ----------
    axis : the axis that the elements span.
    dtype, to_dtype : source and target element; field k is run k, gaps are padding.
    start, to_start : bytes from the first index of the axis to the first run.
    """

    axis: int
    dtype: np.dtype[Any]
    to_dtype: np.dtype[Any]
    start: int
    to_start: int


def _structured_runs(
    transfer: Transfer, itemsize: int, source: Region, target: Region
) -> _StructuredRuns | None:
    """The runs of the contiguous axis as fields; None if strided views are faster."""
    strides = list(zip(source.strides, target.strides, strict=True))
    if (itemsize, itemsize) not in strides:
        return None
    axis = strides.index((itemsize, itemsize))
    runs = transfer.runs[axis]
    if len(runs) < tuning.structured_families:
        return None
    fields = sum(run.repeats for run in runs)
    if fields > min(tuning.structured_fields, tuning.structured_repeats * len(runs)):
        return None
    size = transfer.shape[axis] * itemsize
    if not tuning.structured_run_bytes * fields <= size <= tuning.fused_run_bytes * fields:
        return None
    return _structured(axis, runs, itemsize, source.role, target.role)


@lru_cache(maxsize=64)
def _structured(
    axis: int, runs: tuple[Run, ...], itemsize: int, role: Role, to_role: Role
) -> _StructuredRuns | None:
    """Structured elements of ``runs``; None if the runs are too far apart for one element."""
    sides = []
    # Different field names prevent NumPy from copying elements of equal form with their padding.
    for name, where in (("source", role), ("target", to_role)):
        fields = []
        for run in runs:
            first, step = start_and_step(run, where)
            fields += [((first + k * step) * itemsize, run.length) for k in range(run.repeats)]
        start = min(offset for offset, _ in fields)
        if max(offset for offset, _ in fields) - start > _MOST_ELEMENT_BYTES:
            return None
        described: Any = {
            "names": [f"{name}{k}" for k in range(len(fields))],
            "formats": [f"V{length * itemsize}" for _, length in fields],
            "offsets": [offset - start for offset, _ in fields],
        }
        sides.append((np.dtype(described), start))
    (dtype, start), (to_dtype, to_start) = sides
    return _StructuredRuns(axis, dtype, to_dtype, start, to_start)


@lru_cache(maxsize=256)
def _element(itemsize: int) -> np.dtype[Any]:
    """Dtype that copies ``itemsize`` bytes at once."""
    # NumPy copies void elements by memmove; sizes of machine words have faster loops.
    return np.dtype(f"u{itemsize}") if itemsize in (1, 2, 4, 8) else np.dtype(f"V{itemsize}")
