"""Messages that MPI sends from an array, or receives into it, directly. Importing this starts MPI.

If a message is made of long contiguous ranges of an array, a derived datatype describes them to
MPI, and no message buffer is needed, which saves a copy. For short ranges MPI is slower than
packing. The thresholds were measured with MPICH on one node, where the receiver reads the memory of
the sender. It may put the message anywhere, but the description of the sender must be short; if it
is not, MPI packs by itself, a hundred times as slowly.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from redistribution.copies.byte_ranges import ByteRanges
from redistribution.copies.regions import Region
from redistribution.plans.transfers import Order, Transfer
from redistribution.tuning import tuning


def send_from_array(
    transfer: Transfer, itemsize: int, source: Region, order: Order, to_host: bool = False
) -> list[Any] | None:
    """Arguments with which MPI sends a transfer directly from ``source``.

    Parameters
    ----------
    to_host : whether the receiver is on another host.

    Returns
    -------
    buffer, count and datatype, which the caller frees; None if the transfer is to be packed.
    """
    found = ByteRanges.of(transfer, itemsize, source, order)
    if to_host and found.number > 1:
        return None
    if found.number > tuning.sent_ranges and any(len(families) > 1 for families in found.axes):
        return None
    return _mpi_arguments(found, source, tuning.sent_range_bytes)


def receive_into_array(
    transfer: Transfer, itemsize: int, target: Region, order: Order
) -> list[Any] | None:
    """Arguments with which MPI receives a transfer directly into ``target``.

    Returns
    -------
    as `send_from_array`.
    """
    found = ByteRanges.of(transfer, itemsize, target, order)
    return _mpi_arguments(found, target, tuning.received_range_bytes)


def _mpi_arguments(ranges: ByteRanges, region: Region, shortest: int) -> list[Any] | None:
    """Buffer, count and datatype; None if ranges are too short or begin before the buffer."""
    if ranges.number > 1 and (ranges.nbytes < shortest * ranges.number or min(region.strides) < 0):
        return None
    return [region.memory[ranges.offset :], 1, derived_datatype(ranges)]


def derived_datatype(ranges: ByteRanges) -> MPI.Datatype:
    """Committed datatype of the ranges, relative to their offset."""
    made = [MPI.BYTE]
    for families in ranges.axes:
        if len(families) == 1:
            _, repeats, step, length = families[0]
            made.append(made[-1].Create_hvector(repeats, length, step))
        else:
            lengths = [family.length for family in families for _ in range(family.repeats)]
            starts = [f.start + k * f.step for f in families for k in range(f.repeats)]
            made.append(made[-1].Create_hindexed(lengths, starts))
    _, *parts, whole = made
    whole.Commit()
    for part in parts:
        part.Free()
    return whole
