"""Files in shared memory whose pages are present, on huge pages where the kernel has them."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape.data import mapped_files
from reshape.data.mapped_files import HUGE_PAGE, map_file, new_memory

SHM = Path("/dev/shm")
SIZES = (1, 4096, HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 12345)


@pytest.fixture
def descriptor() -> Iterator[int]:
    """A file without a name in shared memory."""
    file = os.open(SHM, os.O_TMPFILE | os.O_RDWR, 0o600)
    yield file
    os.close(file)


@pytest.fixture(params=["as the kernel permits", "without huge pages", "before Linux 5.14"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the kernel is asked for: advice that does not exist is refused."""
    if request.param != "as the kernel permits":
        monkeypatch.setattr(mapped_files, "_COLLAPSE", 9999)
    if request.param == "before Linux 5.14":
        monkeypatch.setattr(mapped_files, "_POPULATE_WRITE", 9999)
    return str(request.param)


def mapped_kib(address: int) -> dict[str, int]:
    """What the kernel says of the mapping at an address, in KiB by name."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(f"{address:x}-"))
    found = dict[str, int]()
    for line in lines[first + 1 :]:
        if (match := re.fullmatch(r"(\w+): +(\d+) kB", line)) is None:
            break
        found[match[1]] = int(match[2])
    return found


@pytest.mark.parametrize("size", SIZES)
def test_new_memory_is_zero_and_present(kernel: str, descriptor: int, size: int) -> None:
    mapping = new_memory(descriptor, size)
    array = mapping.array((size,), "u1", "C")
    assert os.fstat(descriptor).st_size == mapping.size == size
    assert mapped_kib(array.ctypes.data)["Rss"] * 1024 >= size
    assert not array.any()
    array[:] = 7
    other = map_file(descriptor, size, writable=False).array((size,), "u1", "C")
    assert (other == 7).all()
    assert not other.flags.writeable


def test_every_process_maps_it_on_huge_pages(descriptor: int) -> None:
    own = new_memory(descriptor, 2 * HUGE_PAGE + 4096).array((2 * HUGE_PAGE,), "u1", "C")
    if not mapped_kib(own.ctypes.data)["ShmemPmdMapped"]:
        pytest.skip("the kernel has no huge pages for shared memory (before Linux 6.1), or no more")
    other = map_file(descriptor, 2 * HUGE_PAGE, writable=False).array((2 * HUGE_PAGE,), "u1", "C")
    assert not other.any()
    for array in (own, other):
        assert mapped_kib(array.ctypes.data)["ShmemPmdMapped"] == 2 * HUGE_PAGE // 1024


def test_a_mapping_ends_with_its_last_array(descriptor: int) -> None:
    array = new_memory(descriptor, HUGE_PAGE).array((HUGE_PAGE,), "u1", "C")[10:20]
    address = f"{array.ctypes.data - 10:x}-"
    gc.collect()
    assert address in Path("/proc/self/maps").read_text()
    assert not array.any()
    del array
    assert address not in Path("/proc/self/maps").read_text()


def test_a_file_that_finds_no_room_is_an_error(descriptor: int) -> None:
    space = os.fstatvfs(descriptor)
    if not space.f_blocks:
        pytest.skip("/dev/shm has no limit")
    with pytest.raises(OSError, match="No space left"):
        new_memory(descriptor, space.f_blocks * space.f_frsize + 1)
    assert os.fstat(descriptor).st_blocks == 0


def test_what_cannot_be_mapped_is_an_error() -> None:
    file = os.open(SHM, os.O_TMPFILE | os.O_WRONLY, 0o600)
    try:
        with pytest.raises(OSError, match="Permission denied"):
            map_file(file, HUGE_PAGE, writable=True)
    finally:
        os.close(file)
