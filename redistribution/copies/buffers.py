"""A pool of message buffers, which are reused so that their pages are touched only once.

In a move through new buffers the operating system spends half of the time clearing their pages.
Large buffers are on huge pages where the system has them. The pool serves one thread.
"""

from __future__ import annotations

import mmap
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.tuning import tuning

Bytes: TypeAlias = NDArray[np.uint8]

_HUGE_PAGE = 1 << 21

# Buffers that are not in use, the oldest first.
_pool: list[Bytes] = []


def rounded_size(size: int) -> int:
    """Bytes of the buffer that `take` returns for ``size``.

    Buffers of the pool have few different sizes, so that one that was given back fits again soon.
    """
    if size <= tuning.pooled_buffer_bytes:
        return size
    grain = _HUGE_PAGE if 2 * size >= _HUGE_PAGE else tuning.pooled_buffer_bytes
    return -(-size // grain) * grain


def take(size: int) -> Bytes:
    """Buffer of ``rounded_size(size)`` bytes with undefined contents; `give_back` it after use."""
    size = rounded_size(size)
    for index in reversed(range(len(_pool))):  # the buffer that was used last may be in the cache
        if _pool[index].size == size:
            return _pool.pop(index)
    # This keeps the pool and the buffers in use within the peak of the buffers in use.
    freed = 0
    while _pool and freed < size:
        freed += _pool.pop(0).size
    if size < _HUGE_PAGE:
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, size + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, np.uint8)
    first = -pages.ctypes.data % _HUGE_PAGE
    return pages[first : first + size]  # the mapping ends with the last reference to it


def give_back(buffer: Bytes) -> None:
    """Put a buffer into the pool. The oldest ones are freed if the pool gets too large."""
    if tuning.pooled_buffer_bytes < buffer.size <= tuning.pool_bytes:
        _pool.append(buffer)
        while pooled_bytes() > tuning.pool_bytes:
            del _pool[0]


def pooled_bytes() -> int:
    """Bytes of all buffers in the pool, which are not in use."""
    return sum(buffer.size for buffer in _pool)


def clear() -> None:
    """Free all buffers in the pool."""
    _pool.clear()
