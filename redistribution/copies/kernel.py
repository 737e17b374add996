"""The compiled copy of products of runs, if there is one: kernel.c, bound by ctypes.

It writes large arrays past the caches, which no NumPy copy does: a line that is only written is
not read first, a third of the memory traffic. And it fetches ahead, across runs. It is compiled
when the project is installed; without it, `redistribution.copies.copying` copies strided views by
NumPy, with the same result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What a family of runs says: fields of `Family` in kernel.c.
FIELDS = 8

# Words of a `Copy` in kernel.c, and the axes it may have.
_HEAD = 8
MOST_AXES = 64

# Version of the interface of kernel.c that is understood here.
_INTERFACE = 4


def load(path: Path) -> ctypes.CDLL | None:
    """Load the library; None if it is not there, not for this machine, or made from another source.

    Calls of what it returns release the GIL.
    """
    try:
        library = ctypes.CDLL(str(path))
        if library.copy_interface() != _INTERFACE:
            return None
    except (OSError, AttributeError):
        return None
    library.copy_products.argtypes = (ctypes.c_void_p,)
    library.copy_products.restype = None
    return library


# The compiled copies; None if there are none.
compiled = load(Path(__file__).with_name("_kernel.so"))


class Product(NamedTuple):
    """The copy of every combination of indices and runs.

    Attributes
    ----------
    families : for each axis, the outermost first, (families, `FIELDS`) int64: length, repeats, then
        start, step and stride in the source and in the target, all in bytes. On the last axis
        length is bytes, too, and strides do not count. At most `MOST_AXES`.
    source, target : addresses that the starts count from. Nothing may overlap.
    streaming : write past the caches. Pays if the target is larger than they are.
    fetching : read ahead. Pays if the source does not lie in cache.
    """

    families: Sequence[NDArray[np.int64]]
    source: int
    target: int
    streaming: bool
    fetching: bool


def bind(products: Sequence[Product]) -> Callable[[], None]:
    """Give the copies of all products, made in turn, a part of each. There must be `compiled` ones.

    What lies side by side should be copied in turn: one copy finds in cache what the other one has
    fetched along with its own.
    """
    assert compiled is not None
    # All in one place, handed over as one argument: small copies spend their time on the call.
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
