"""Files in shared memory: all their pages present, on huge pages where the kernel has them.

The first access to a page of 4 KiB costs ten to twenty times the copy of its contents, and each
process that maps it pays again. A file system is rarely mounted with huge pages, but a process may
ask for them since Linux 6.1 (``MADV_COLLAPSE``), without privileges and whatever the mount options.
A process maps a huge page as one only at an address that is a multiple of its size, which Python's
`mmap.mmap` cannot ask for.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from redistribution.layout import MemoryOrder

#: Bytes of a huge page, on x86-64 and on 64-bit Arm with small pages of 4 KiB.
HUGE_PAGE = 1 << 21

# Advice of Linux 5.14 and 6.1, which Python 3.11 does not define.
_POPULATE_WRITE = 23
_COLLAPSE = 25
# Flags of Linux that the module mmap does not define.
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapping(msgspec.Struct, frozen=True, eq=False):
    """A file in the memory of this process; it ends with the last array that refers to it.

    Attributes
    ----------
    region : addresses that contain it.
    first : its first byte in the region.
    size : bytes of the file.
    is_writable : whether arrays of it may be written.
    """

    region: mmap.mmap
    first: int
    size: int
    is_writable: bool

    def array(self, shape: tuple[int, ...], dtype: DTypeLike, order: MemoryOrder) -> NDArray[Any]:
        """Return an array that covers the beginning of the file."""
        array: NDArray[Any] = np.ndarray(shape, dtype, self.region, self.first, order=order)
        array.flags.writeable = self.is_writable
        return array


def map_file(descriptor: int, size: int, *, writable: bool) -> Mapping:
    """Map a file of `size` > 0 bytes, at an address where huge pages can be used.

    Raises
    ------
    OSError : the process may not map as much.
    """
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    region = mmap.mmap(-1, size + HUGE_PAGE, kind)
    begin = np.frombuffer(region, np.uint8).ctypes.data
    first = -begin % HUGE_PAGE
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    # The region stays one object of Python, which unmaps all of it when nothing refers to it.
    fixed = mmap.MAP_SHARED | _MAP_FIXED
    if _libc.mmap(begin + first, size, access, fixed, descriptor, 0) != begin + first:
        raise _error()
    return Mapping(region, first, size, writable)


def new_memory(descriptor: int, size: int) -> Mapping:
    """Give an empty file its length and all its pages, and map it.

    The other threads of the process run meanwhile.

    Raises
    ------
    OSError : there is no room. A full file system must cause an error here, not a SIGBUS when an
        array is used.
    """
    _check_room(descriptor, size)
    os.ftruncate(descriptor, size)
    mapping = map_file(descriptor, size, writable=True)
    # The kernel joins the pages of a range only if it has one.
    for start in range(0, size - HUGE_PAGE + 1, HUGE_PAGE):
        os.posix_fallocate(descriptor, start, 1)
    _advise(mapping, size // HUGE_PAGE * HUGE_PAGE, _COLLAPSE)
    os.posix_fallocate(descriptor, 0, size)  # whatever is not on huge pages
    populate(mapping)
    return mapping


def populate(mapping: Mapping) -> None:
    """Map all pages of a writable mapping, so that no page fault delays their first use."""
    if not _advise(mapping, mapping.size, _POPULATE_WRITE):  # before Linux 5.14
        mapping.array((mapping.size,), np.uint8, "C")[:: mmap.PAGESIZE] |= 0


def forbid(mapping: Mapping) -> None:
    """Let every access to a mapping end the process by SIGSEGV.

    Raises
    ------
    OSError : the kernel refuses.
    """
    begin = np.frombuffer(mapping.region, np.uint8).ctypes.data + mapping.first
    if _libc.mprotect(begin, mapping.size, _PROT_NONE) != 0:
        raise _error()


def _advise(mapping: Mapping, size: int, advice: int) -> bool:
    """Advise the kernel about the first bytes of a mapping; False if it does not comply."""
    begin = np.frombuffer(mapping.region, np.uint8).ctypes.data + mapping.first
    return not size or _libc.madvise(begin, size, advice) == 0


def _check_room(descriptor: int, size: int) -> None:
    """Raise OSError at once if the file system has less room.

    An allocation that fails later would take that room from all other processes for a while.
    """
    space = os.fstatvfs(descriptor)
    if space.f_blocks and space.f_bavail * space.f_frsize < size:  # without blocks: no limit
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
