"""The compiled copy by itself: long runs, gaps, and libraries that do not fit."""

from pathlib import Path

import numpy as np
import pytest

from redistribution import kernel

compiled = pytest.mark.skipif(kernel.library is None, reason="there was no C compiler")


def copied(length, repeats, step, to_step, offset, streaming):
    """Runs of bytes of one family, copied by the kernel and by NumPy, into noise."""
    rng = np.random.default_rng(length)
    source = rng.integers(0, 256, offset + repeats * step, np.uint8)
    found = rng.integers(0, 256, 3 + repeats * to_step, np.uint8)
    expected = found.copy()
    for k in range(repeats):
        run = source[offset + k * step : offset + k * step + length]
        expected[3 + k * to_step : 3 + k * to_step + length] = run
    family = np.array([[length, repeats, offset, step, 0, 3, to_step, 0]])
    kernel.bind([family], source.ctypes.data, found.ctypes.data, streaming=streaming)()
    return found, expected


@compiled
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("length", "repeats", "step", "to_step"),
    [
        (1, 7, 1, 2),
        (15, 3, 20, 16),
        (64, 900, 128, 64),  # a gap as long as the runs: read through
        (248, 500, 300, 250),
        (512, 200, 2048, 600),  # a longer gap: fetched ahead
        (700, 40, 700, 701),
        (100_000, 2, 100_001, 100_000),
    ],
)
def test_runs_and_gaps_of_all_lengths(length, repeats, step, to_step, streaming):
    for offset in (0, 5, 64):
        found, expected = copied(length, repeats, step, to_step, offset, streaming)
        np.testing.assert_array_equal(found, expected)


def test_a_library_that_is_not_ours_is_not_used(tmp_path):
    assert kernel.load(tmp_path / "absent.so") is None
    (tmp_path / "broken.so").write_bytes(b"no library")
    assert kernel.load(tmp_path / "broken.so") is None
    maps = Path("/proc/self/maps").read_text().splitlines()
    other = next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-" in line)
    assert kernel.load(other) is None
