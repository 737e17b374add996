"""The byte ranges of an array that hold the message of a transfer, in the order of the message.

A run may end in the source and continue in the target, or the other way round: a row that was dealt
out in blocks is whole again on the other side. So the contiguous ranges of one side are longer than
the runs that both sides have in common, often by orders of magnitude. Needs no MPI.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from redistribution.copies.buffers import Bytes
from redistribution.copies.regions import Region, Role, start_and_step
from redistribution.layout import MemoryOrder
from redistribution.runs import Run, Transfer


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
