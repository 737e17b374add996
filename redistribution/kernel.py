"""The compiled copy of a product of runs, if there is one: kernel.c, bound by ctypes.

It writes large arrays past the caches, which no NumPy copy does: a line that is only written is
not read first, a third of the memory traffic. And it fetches ahead, across runs. It is compiled
when the project is installed; without it, `redistribution.packing` copies strided views by NumPy,
with the same result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# What a family of runs says: fields of `Family` in kernel.c.
FIELDS = 8

# Version of the interface of kernel.c that is understood here.
_INTERFACE = 3


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
    library.copy_product.argtypes = (ctypes.c_void_p,)
    library.copy_product.restype = None
    return library


# The compiled copies; None if there are none.
compiled = load(Path(__file__).with_name("_kernel.so"))


def bind(
    families: Sequence[NDArray[np.int64]],
    source: int,
    target: int,
    *,
    streaming: bool,
    fetching: bool,
) -> Callable[[], None]:
    """Give the copy of every combination of indices and runs. There must be `compiled` ones.

    Parameters
    ----------
    families : for each axis, the outermost first, (families, `FIELDS`) int64: length, repeats, then
        start, step and stride in the source and in the target, all in bytes. On the last axis
        length is bytes, too, and strides do not count.
    source, target : addresses that the starts count from. Nothing may overlap.
    streaming : write past the caches. Pays if the target is larger than they are.
    fetching : read ahead. Pays if the source does not lie in cache.
    """
    assert compiled is not None
    # All in one place, handed over as one argument: small copies spend their time on the call.
    counts = np.array([len(along) for along in families], np.int64)
    words = np.concatenate((np.empty(7, np.int64), counts, *map(np.ravel, families)))
    copy_product, at = compiled.copy_product, words.ctypes.data
    at_counts = at + 7 * words.itemsize
    at_families = at_counts + counts.nbytes
    words[:7] = len(families), at_counts, at_families, source, target, streaming, fetching

    def copy(_kept: NDArray[np.int64] = words) -> None:
        copy_product(at)

    return copy
