"""Checksums of the bytes of a checkpoint, at nearly the speed of memory.

CRC-32 of all bytes would take longer than writing them to a fast disk. So the 64-bit words of each
page of 4 KiB are added modulo 2**64, and the sums of the pages of a chunk go into its CRC-32. One
changed word in a page always changes the checksum, any other change of contents, order or length
with a probability of about 1 - 2**-32. Words that change places within one page are not detected.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

#: Bytes with a checksum of their own: 16 checksums for each GiB.
CHUNK_BYTES = 64 << 20
#: Bytes that are summed up at a time; they stay in the cache of a core for what follows.
BATCH_BYTES = 512 << 10
_PAGE_BYTES = 4096
_WORD = np.dtype("<u8")


def chunk_sum(data: NDArray[np.uint8]) -> int:
    """Checksum of a chunk: (bytes,) uint8, contiguous."""
    found = len(data)
    for begin in range(0, len(data), BATCH_BYTES):
        found = extended(found, data[begin : begin + BATCH_BYTES])
    return found


def extended(found: int, batch: NDArray[np.uint8]) -> int:
    """Checksum of a chunk, given that of the batches before; the first follows its length."""
    return zlib.crc32(_page_sums(batch).data, found)


def chunk_ranges(size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each chunk of `size` bytes."""
    for begin in range(0, size, CHUNK_BYTES):
        yield begin, min(size, begin + CHUNK_BYTES)


def _page_sums(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Sums of the words of each page; a last page that is not complete is filled with zeros."""
    whole = len(data) // _PAGE_BYTES * _PAGE_BYTES
    sums: NDArray[np.uint64] = (
        data[:whole].view(_WORD).reshape(-1, _PAGE_BYTES // _WORD.itemsize).sum(axis=1)
    )
    if whole == len(data):
        return sums
    page = np.zeros(_PAGE_BYTES, np.uint8)
    page[: len(data) - whole] = data[whole:]
    return np.append(sums, page.view(_WORD).sum())
