"""Messages that MPI takes out of an array, or puts into it, by itself. Importing this starts MPI.

Where a message lies in an array in long stretches, MPI is told so by a derived type: it sends or
receives without a buffer of ours, and one copy less is made. In short stretches MPI is slower than
packing. What is long was measured on one node with MPICH, whose receiver reads the memory of the
sender: it may put the message anywhere, but the sender has to tell it in a few words where the
message lies, or is a hundred times as slow.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from redistribution.copies.copying import Region
from redistribution.copies.stretches import Stretches
from redistribution.plan import Order, Transfer

# Bytes of stretches, on average, from which on they are long.
SENT_BYTES = 1 << 16
RECEIVED_BYTES = 1 << 11

# Stretches that may be sent as a list; more must repeat themselves at one distance.
SENT_LIST = 16


def sent(transfer: Transfer, itemsize: int, source: Region, order: Order) -> list[Any] | None:
    """What MPI is given to send a transfer out of ``source`` itself.

    Returns
    -------
    buffer, count and datatype, which is to be freed; None if the transfer is to be packed.
    """
    found = Stretches.of(transfer, itemsize, source, order)
    if found.number > SENT_LIST and any(len(rows) > 1 for rows in found.axes):
        return None
    return _given(found, source, SENT_BYTES)


def received(transfer: Transfer, itemsize: int, target: Region, order: Order) -> list[Any] | None:
    """What MPI is given to receive a transfer into ``target`` itself; else like `sent`."""
    return _given(Stretches.of(transfer, itemsize, target, order), target, RECEIVED_BYTES)


def _given(stretches: Stretches, region: Region, shortest: int) -> list[Any] | None:
    """A message, unless it is too scattered or would begin before the memory that MPI is given."""
    if stretches.number > 1 and (
        stretches.nbytes < shortest * stretches.number or min(region.strides) < 0
    ):
        return None
    return [region.memory[stretches.offset :], 1, datatype(stretches)]


def datatype(stretches: Stretches) -> MPI.Datatype:
    """The stretches as a committed datatype, counted from their offset."""
    made = [MPI.BYTE]
    for rows in stretches.axes:
        if len(rows) == 1:
            _, repeats, step, length = rows[0]
            made.append(made[-1].Create_hvector(repeats, length, step))
        else:
            lengths = [row.length for row in rows for _ in range(row.repeats)]
            places = [row.start + k * row.step for row in rows for k in range(row.repeats)]
            made.append(made[-1].Create_hindexed(lengths, places))
    _, *others, whole = made
    whole.Commit()
    for other in others:
        other.Free()
    return whole
