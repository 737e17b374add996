"""The compiled kernel alone: long runs, gaps, and libraries with another interface."""

from pathlib import Path

import numpy as np
import pytest

from redistribution.copies import kernel

compiled = pytest.mark.skipif(kernel.compiled is None, reason="there was no C compiler")


def copied(length, repeats, step, to_step, offset, streaming, prefetching):
    """Runs of one family, copied by the kernel and by NumPy into random bytes."""
    rng = np.random.default_rng(length)
    source = rng.integers(0, 256, offset + repeats * step, np.uint8)
    found = rng.integers(0, 256, 3 + repeats * to_step, np.uint8)
    expected = found.copy()
    for k in range(repeats):
        run = source[offset + k * step : offset + k * step + length]
        expected[3 + k * to_step : 3 + k * to_step + length] = run
    family = np.array([[length, repeats, offset, step, 0, 3, to_step, 0]])
    product = kernel.Product(
        [family],
        source.ctypes.data,
        found.ctypes.data,
        streaming=streaming,
        prefetching=prefetching,
    )
    kernel.bind([product])()
    return found, expected


@compiled
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("prefetching", [False, True])
@pytest.mark.parametrize(
    ("length", "repeats", "step", "to_step"),
    [
        (1, 7, 1, 2),
        (15, 3, 20, 16),
        (64, 900, 128, 64),
        (248, 500, 300, 250),
        (512, 200, 2048, 600),
        (136, 300, 200, 136),  # two runs share cache lines
        (700, 40, 700, 701),
        (1025, 7, 1100, 1030),  # more than is prefetched at a time
        (100_000, 2, 100_001, 100_000),
    ],
)
def test_runs_and_gaps_of_all_lengths(length, repeats, step, to_step, streaming, prefetching):
    for offset in (0, 5, 64):
        found, expected = copied(length, repeats, step, to_step, offset, streaming, prefetching)
        np.testing.assert_array_equal(found, expected)


@compiled
@pytest.mark.parametrize("prefetching", [False, True])
def test_more_rows_than_are_copied_at_a_time(prefetching):
    """Three axes: 2 families of blocks, 3 rows in every one, 2 families of runs in each row."""
    source = np.random.default_rng(1).integers(0, 256, (700, 5, 300), np.uint8)
    found = np.zeros((1400, 3, 100), np.uint8)
    blocks = [[1, 600, 0, 1500, 0, 0, 600, 0], [1, 80, 1500 * 610, 1500, 0, 300, 600, 0]]
    rows = [[3, 1, 300, 0, 300, 0, 0, 100]]
    runs = [[10, 3, 7, 40, 0, 0, 10, 0], [60, 1, 200, 0, 0, 40, 0, 0]]
    product = kernel.Product(
        [np.array(axis) for axis in (blocks, rows, runs)],
        source.ctypes.data,
        found.ctypes.data,
        streaming=False,
        prefetching=prefetching,
    )
    kernel.bind([product])()
    expected = np.zeros_like(found)
    for to, fro in ((slice(0, 1200, 2), slice(600)), (slice(1, 161, 2), slice(610, 690))):
        for k in range(3):
            expected[to, :, 10 * k : 10 * k + 10] = source[fro, 1:4, 7 + 40 * k : 17 + 40 * k]
        expected[to, :, 40:] = source[fro, 1:4, 200:260]
    np.testing.assert_array_equal(found, expected)


@compiled
@pytest.mark.parametrize("products", [2, 7, 8, 9, 20])
def test_products_that_are_copied_in_turn(products):
    """Products with very different numbers of rows, each into columns of its own."""
    rng = np.random.default_rng(products)
    rows, width = 3000, 512
    source = rng.integers(0, 256, (rows, products * width), np.uint8)
    found, expected = np.zeros_like(source), np.zeros_like(source)
    made = []
    for k in range(products):
        taken, at = rows // (1 + k), k * width
        expected[:taken, at : at + width] = source[:taken, at : at + width]
        outer = [[taken, 1, 0, 0, products * width, 0, 0, products * width]]
        inner = [[width // 2, 2, at, width // 2, 0, at, width // 2, 0]]
        made.append(
            kernel.Product(
                [np.array(outer), np.array(inner)],
                source.ctypes.data,
                found.ctypes.data,
                streaming=bool(k % 2),
                prefetching=bool(k % 3),
            )
        )
    copy = kernel.bind(made)
    for _ in range(2):
        found[...] = 0
        copy()
        np.testing.assert_array_equal(found, expected)


def test_a_library_with_another_interface_is_not_used(tmp_path):
    assert kernel.load(tmp_path / "absent.so") is None
    (tmp_path / "broken.so").write_bytes(b"no library")
    assert kernel.load(tmp_path / "broken.so") is None
    maps = Path("/proc/self/maps").read_text().splitlines()
    other = next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-" in line)
    assert kernel.load(other) is None
