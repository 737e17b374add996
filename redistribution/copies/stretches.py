"""Where the message of a transfer lies in an array: the stretches of bytes it is made of, in turn.

A run may end in the source and go on in the target, or the other way round: a row that was dealt
out in blocks is whole again on the other side. So the stretches of either side are longer than the
runs that both have in common, often by orders of magnitude. Needs no MPI.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from redistribution.copies.buffers import Bytes
from redistribution.copies.copying import Place, Region, start_and_step
from redistribution.plan import Order, Transfer
from redistribution.plans.runs import Run


class Row(NamedTuple):
    """``repeats`` times ``length``, the first at byte ``start``, each ``step`` bytes further.

    Of the fastest axis ``length`` is bytes; of the others, how often all that comes before.
    """

    start: int
    repeats: int
    step: int
    length: int


class Stretches(NamedTuple):
    """The message of a transfer in a region.

    Attributes
    ----------
    offset : bytes from the first byte of the region on, to which all starts add up.
    axes : rows along each axis, in the order of the message, the fastest axis first. What lies
        together along several axes is one row of length 1.
    nbytes : length of the message.
    """

    offset: int
    axes: list[list[Row]]
    nbytes: int

    @classmethod
    def of(cls, transfer: Transfer, itemsize: int, region: Region, order: Order) -> Stretches:
        """The stretches of ``transfer`` in ``region``, elements taken in C or Fortran order."""
        along = [
            (stride, _spans(runs, region.place))
            for runs, stride in zip(transfer.runs, region.strides, strict=True)
        ]
        if order == "C":
            along.reverse()
        offset, size, axes = region.origin, itemsize, []
        while along:
            stride, spans = along[0]
            start, length, repeats, _ = spans[0]
            if len(spans) > 1 or repeats > 1 or (length > 1 and stride != size):
                break
            offset += start * stride
            size *= length
            del along[0]
        if along and along[0][0] == size:
            stride, spans = along.pop(0)
            axes.append(
                [Row(s.start * size, s.repeats, s.step * size, s.length * size) for s in spans]
            )
        else:
            axes.append([Row(0, 1, size, size)])
        axes += [_rows(stride, spans) for stride, spans in along]
        for rows in axes:
            if len(rows) == 1:
                offset += rows[0].start
                rows[0] = rows[0]._replace(start=0)
        return cls(offset, axes, transfer.elements * itemsize)

    @property
    def number(self) -> int:
        """Number of stretches."""
        return math.prod(sum(row.repeats for row in rows) for rows in self.axes)


def in_place(transfer: Transfer, itemsize: int, region: Region, order: Order) -> Bytes | None:
    """Bytes of the message of ``transfer`` inside ``region``, if they lie there ready to send."""
    found = Stretches.of(transfer, itemsize, region, order)
    return region.memory[found.offset :][: found.nbytes] if found.number == 1 else None


class _Span(NamedTuple):
    """``repeats`` times ``length`` indices of an axis, the first from ``start`` on."""

    start: int
    length: int
    repeats: int
    step: int


def _spans(runs: tuple[Run, ...], place: Place) -> list[_Span]:
    """Runs of an axis as they lie in ``place``; what has no gap between is one."""
    found: list[_Span] = []
    for run in runs:
        start, step = start_and_step(run, place)
        span = _Span(start, run.length, run.repeats, step)
        if step == run.length:
            span = _Span(start, run.length * run.repeats, 1, step)
        last = found[-1] if found else None
        if last and last.repeats == span.repeats == 1 and last.start + last.length == start:
            found[-1] = last._replace(length=last.length + span.length)
        else:
            found.append(span)
    return found


def _rows(stride: int, spans: list[_Span]) -> list[Row]:
    """Every index of an axis that is not the fastest."""
    rows = []
    for start, length, repeats, step in spans:
        if length == 1:
            rows.append(Row(start * stride, repeats, step * stride, 1))
        else:
            rows += [Row((start + k * step) * stride, length, stride, 1) for k in range(repeats)]
    return rows
