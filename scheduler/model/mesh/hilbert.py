"""The Hilbert curve through a mesh of any number of dimensions and any sides.

J. Skilling, "Programming the Hilbert curve" (AIP Conference Proceedings 707, 2004). The curve runs
through the cube whose side is the smallest power of two that holds the mesh; positions outside of
the mesh are left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]


@lru_cache(maxsize=8)
def curve(dims: tuple[int, ...]) -> Ints:
    """Positions of the nodes in the order of the curve, (nodes,) int64; do not change it."""
    nodes = int(np.prod(dims))
    coordinates = np.array(np.unravel_index(np.arange(nodes), dims), dtype=np.int64)
    bits = max(1, (max(dims) - 1).bit_length())
    order: Ints = np.argsort(_along_curve(coordinates, bits), kind="stable").astype(np.int64)
    return order


def _along_curve(x: Ints, bits: int) -> Ints:
    """Index on the curve of each point.

    Parameters
    ----------
    x : coordinates, (d, n) int64, of `bits` bits; they are overwritten.
    """
    d = len(x)
    bit = 1 << (bits - 1)
    while bit > 1:  # undo the exchanges and inversions
        low = bit - 1
        for i in range(d):
            inverted = (x[i] & bit) != 0
            swapped = np.where(inverted, 0, (x[0] ^ x[i]) & low)
            x[0] = np.where(inverted, x[0] ^ low, x[0] ^ swapped)
            x[i] ^= swapped
        bit >>= 1
    for i in range(1, d):  # Gray code
        x[i] ^= x[i - 1]
    flips = np.zeros_like(x[0])
    bit = 1 << (bits - 1)
    while bit > 1:
        flips = np.where((x[d - 1] & bit) != 0, flips ^ (bit - 1), flips)
        bit >>= 1
    x ^= flips
    index = np.zeros_like(x[0])
    for place in range(bits - 1, -1, -1):
        for i in range(d):
            index = 2 * index + ((x[i] >> place) & 1)
    found: Ints = index
    return found
