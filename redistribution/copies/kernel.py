"""Compiled functions (kernel.c), by ctypes: copies of products of runs, hashes, meetings of ranks.

The copy does two things that NumPy does not: it writes large arrays past the caches, which saves
reading the lines that are only written, a third of the memory traffic; and it prefetches across
runs. The kernel is compiled when the project is installed. Without it,
`redistribution.copies.copying` copies the same bytes with NumPy, `redistribution.checksum` hashes
with NumPy, and ranks agree by messages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Number of fields of `Family` in kernel.c.
FIELDS = 8

# Number of words of `Copy` in kernel.c, and the most axes that it may have.
_HEAD = 8
MOST_AXES = 64

# Version of the interface of kernel.c that this module uses.
_INTERFACE = 7


def load(path: Path) -> ctypes.CDLL | None:
    """Load the compiled kernel.

    Its functions release the global interpreter lock.

    Returns
    -------
    None if the file is missing, is for another machine, or has another version of the interface.
    """
    try:
        library = ctypes.CDLL(str(path))
        if library.copy_interface() != _INTERFACE:
            return None
    except (OSError, AttributeError):
        return None
    library.copy_products.argtypes = (ctypes.c_void_p,)
    library.copy_products.restype = None
    library.hash_sum.argtypes = (
        *(ctypes.c_void_p, ctypes.c_int64),
        *(ctypes.c_void_p, ctypes.c_int64),
        *(ctypes.c_void_p, ctypes.c_int64),
    )
    library.hash_sum.restype = ctypes.c_uint64
    library.read_word.argtypes = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    library.meet.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint32),
        *(ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64),
    )
    library.await_turn.argtypes = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64)
    return library


# The compiled kernel; None if there is none.
compiled = load(Path(__file__).with_name("_kernel.so"))


class Product(NamedTuple):
    """A copy of every combination of indices of the outer axes and runs of the last axis.

    Attributes
    ----------
    families : for each axis, the outermost first, (families, `FIELDS`) int64: length, repeats, then
        start, step and stride in the source and in the target, all in bytes. On the last axis
        length is in bytes, too, and strides are ignored. At most `MOST_AXES` axes.
    source, target : addresses to which the starts are added. The copied bytes must not overlap.
    streaming : write past the caches; faster if the target is larger than they are.
    prefetching : fetch ahead; faster if the source is not in a cache.
    """

    families: Sequence[NDArray[np.int64]]
    source: int
    target: int
    streaming: bool
    prefetching: bool


def bind(products: Sequence[Product]) -> Callable[[], None]:
    """Function that copies all products, in turn a part of each. Requires the `compiled` kernel.

    Products that are neighbours in memory are faster in turn: a copy finds in the cache what
    another one has fetched along with its own bytes.
    """
    assert compiled is not None
    # One argument in one block of memory: the time of a small copy is the time of the call.
    counts = [np.array([len(along) for along in each.families], np.int64) for each in products]
    parts: list[NDArray[np.int64]] = []
    for each, count in zip(products, counts, strict=True):
        parts += (np.empty(_HEAD, np.int64), count, *map(np.ravel, each.families))
    words = np.concatenate(parts)
    copy_products, first = compiled.copy_products, words.ctypes.data
    at = 0
    for each, count in zip(products, counts, strict=True):
        at_counts = at + _HEAD
        at_families = at_counts + len(count)
        end = at_families + FIELDS * int(count.sum())
        words[at:at_counts] = (
            len(count),
            first + 8 * at_counts,
            first + 8 * at_families,
            *each[1:],
            first + 8 * end if end < len(words) else 0,
        )
        at = end

    def copy(_kept: NDArray[np.int64] = words) -> None:
        copy_products(first)

    return copy
