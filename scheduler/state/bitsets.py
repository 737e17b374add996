"""Sets of processors as the bits of an integer: bit i is set if processor i is in the set.

Union, intersection and the number of members take one operation each, for any number of intervals.
`ProcSet` remains the form in which sets are kept and shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.model.procset import ProcSet


def bits_of(processors: ProcSet) -> int:
    """Bits of a set."""
    bits = 0
    for first, last in processors.intervals:
        bits |= ((1 << (last - first + 1)) - 1) << first
    return bits


def set_of(bits: int) -> ProcSet:
    """Set with these bits."""
    intervals: list[tuple[int, int]] = []
    first = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        first += gap
        length = (~bits & (bits + 1)).bit_length() - 1
        intervals.append((first, first + length - 1))
        bits >>= length
        first += length
    return ProcSet(tuple(intervals))


def lowest_bits(bits: int, count: int) -> int:
    """The `count` (>= 1) lowest of the bits that are set, or all if there are fewer."""
    if bits.bit_count() <= count:
        return bits
    low, high = 0, bits.bit_length()  # the first `low` bits have fewer, the first `high` enough
    while high - low > 1:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() < count:
            low = middle
        else:
            high = middle
    return bits & ((1 << high) - 1)


def bits_in_blocks(free: int, nodes: Iterable[int], block: int, count: int) -> int:
    """The lowest bits of each node in blocks of one size, until they are enough; 0: they are not.

    Parameters
    ----------
    nodes : bits of the processors of each node, in the order of preference.
    count : >= 1, a multiple of `block`.
    """
    bits, left = 0, count
    for node in nodes:
        here = node & free
        taken = min(here.bit_count() // block * block, left)
        if taken:
            bits |= lowest_bits(here, taken)
            left -= taken
            if not left:
                return bits
    return 0
