"""Memory for messages, kept between moves so that its pages are touched once.

Half of the time of a move through fresh buffers is the kernel clearing their pages. Large buffers
lie on huge pages where the system has them, and some are kept for the next move.
"""

from __future__ import annotations

import mmap
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]

# Buffers up to this size come from the allocator, which keeps them warm itself.
SMALL_BYTES = 1 << 17

# Larger buffers lie on huge pages, if there are any.
_HUGE_PAGE = 1 << 21

# Of all that is not in use, as much is kept.
KEPT_BYTES = 1 << 25

# The oldest first. Used by one thread.
_kept: list[Bytes] = []


def rounded(size: int) -> int:
    """Bytes of the buffer that `take` gives for ``size``: whole huge pages if it fills half of one.

    There are few sizes, so that a buffer that was given back is soon taken again.
    """
    if size <= SMALL_BYTES:
        return size
    grain = _HUGE_PAGE if 2 * size >= _HUGE_PAGE else SMALL_BYTES
    return -(-size // grain) * grain


def take(size: int) -> Bytes:
    """Memory of `rounded` ``size`` bytes, of any contents; `give` it back afterwards."""
    size = rounded(size)
    for place in reversed(range(len(_kept))):  # the last one given is the one in cache
        if _kept[place].size == size:
            return _kept.pop(place)
    # What is kept and what is in use are together no more than what was ever in use at a time.
    freed = 0
    while _kept and freed < size:
        freed += _kept.pop(0).size
    if size < _HUGE_PAGE:
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, size + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, np.uint8)
    first = -pages.ctypes.data % _HUGE_PAGE
    return pages[first : first + size]  # unmapped when nobody holds it any more


def give(buffer: Bytes) -> None:
    """Keep a buffer for the next one who takes as much, in place of the oldest ones."""
    if SMALL_BYTES < buffer.size <= KEPT_BYTES:
        _kept.append(buffer)
        while sum(each.size for each in _kept) > KEPT_BYTES:
            del _kept[0]


def clear() -> None:
    """Keep nothing."""
    _kept.clear()
