"""A checksum of a global array that does not depend on its layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.copies import kernel
from redistribution.layout import Layout
from redistribution.tuning import tuning

Words: TypeAlias = NDArray[np.uint64]


# Elements hashed at a time: the temporary arrays of half a MB stay in the cache.
_CHUNK = 1 << 16

# Odd constants of the SplitMix64 generator (Steele, Lea, Flood, OOPSLA 2014).
_WEYL = 0x9E3779B97F4A7C15
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = 2**64 - 1


def checksum(layout: Layout, process: int, local: NDArray[Any]) -> int:
    """Contribution of this process to the checksum of the global array.

    The sum of all contributions modulo 2**64 is the same for any layout. Each element contributes a
    hash of its global index and its bytes. So the sum changes, except with a probability of about
    2**-64, if an element changes or is lost, or if two different elements are swapped. Of a
    replicated array only the first copy counts: the contributions of the others are 0.

    Parameters
    ----------
    layout, process : the layout, and the process of ``local`` in it.
    local : shape ``layout.local_shape(process)``, any dtype of fixed size, any strides. Elements
        are compared by bytes: 0.0 and -0.0 differ, equal NaN patterns do not. Padding between the
        fields of a structured element is ignored, since NumPy does not preserve it.

    Returns
    -------
    int in [0, 2**64)

    Raises
    ------
    ValueError : there is no such process, a wrong shape, or a dtype that holds Python objects.

    Notes
    -----
    Extra memory: below 2 MB for elements of 8 bytes, plus 8 bytes for each local index of each
    axis.
    """
    layout.check_local(process, local)
    if layout.places[process][0]:
        return 0

    keys, stride = [], _WEYL
    for indices, extent in zip(
        reversed(layout.global_indices(process)), reversed(layout.shape), strict=True
    ):
        keys.append(indices.astype(np.uint64) * np.uint64(stride))
        stride = stride * extent & _MASK
    packed = _packed(local.dtype)
    chunks = _chunks(local, keys[::-1])
    return (
        sum(_hash(chunk.astype(packed, order="C", copy=False), along) for chunk, along in chunks)
        & _MASK
    )


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype without gaps between its fields."""
    if dtype.names is None:
        return dtype
    from numpy.lib.recfunctions import repack_fields  # its import takes each rank 20 ms

    return repack_fields(dtype, recurse=True)


def _chunks(local: NDArray[Any], keys: list[Words]) -> Iterator[tuple[NDArray[Any], list[Words]]]:
    """Split the array, and the keys of its indices, into chunks of at most _CHUNK elements."""
    if local.nbytes == 0:
        return
    if local.size <= _CHUNK:
        yield local, keys
        return
    axis = int(np.argmax(local.shape))
    middle = local.shape[axis] // 2
    for half in (slice(None, middle), slice(middle, None)):
        where = (slice(None),) * axis + (half,)
        yield from _chunks(local[where], [*keys[:axis], keys[axis][half], *keys[axis + 1 :]])


def _hash(packed: NDArray[Any], keys: list[Words]) -> int:
    """Sum of the hashes of the elements of one contiguous chunk without padding.

    The key of an element is its global linear index times a Weyl constant modulo 2**64: the sum
    of one term for each axis. A bijective mix of key + word makes the hash.
    """
    rows, words = np.zeros(1, np.uint64), _words(packed)
    for along in keys[:-1]:
        rows = (rows[:, np.newaxis] + along).reshape(-1)
    columns = np.ascontiguousarray(keys[-1])
    if kernel.compiled is not None and tuning.use_kernel:
        sides = rows.ctypes.data, len(rows), columns.ctypes.data, len(columns)
        return int(kernel.compiled.hash_sum(*sides, words.ctypes.data, words.shape[1]))
    key, total = (rows[:, np.newaxis] + columns).reshape(-1), 0
    for k in range(words.shape[1]):
        mixed = key + words[:, k]
        if k:
            mixed += np.uint64(k * int(_MIX_1) & _MASK)
        shifted = np.empty_like(mixed)
        for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
            np.right_shift(mixed, np.uint64(shift), out=shifted)
            mixed ^= shifted
            mixed *= factor
        np.right_shift(mixed, np.uint64(31), out=shifted)
        mixed ^= shifted
        total += int(mixed.sum(dtype=np.uint64))
    return total


def _words(packed: NDArray[Any]) -> Words:
    """The elements as 64-bit words, zero-padded: one row for each element."""
    itemsize = packed.dtype.itemsize
    padded = packed.reshape(-1).view(np.uint8).reshape(-1, itemsize)
    if itemsize % 8:
        room = np.zeros((len(padded), -(-itemsize // 8) * 8), dtype=np.uint8)
        room[:, :itemsize] = padded
        padded = room
    return padded.view(np.uint64)
