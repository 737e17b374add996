"""Times of allocating, filling and releasing a local part, which are part of a resize's pause.

    python benchmarks/runtime/segments.py [--mib 128] [--folder /dev/shm]

Creates and discards a segment repeatedly, as resizes do. "first" is the time of the first one, for
which the system may have to provide unused memory; "again" is the median of the others. "copy" is
the time to fill the segment from an array, as a move does.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from reshape.data import segments
from reshape.data.declarations import declare
from reshape.doctor.checks import check_pages


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    size = options.mib << 20
    source = np.ones(size, np.uint8)
    declaration = declare("A", "replicated", (size,), (), "u1", "C")
    times: dict[str, list[float]] = {"create": [], "copy": [], "discard": []}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="benchmark-") as folder:
        for epoch in range(options.repeats):
            began = time.perf_counter()
            memory = segments.RankMemory(Path(folder), epoch, 0)
            segment = segments.create(memory, declaration, declaration.layout(1))
            created = time.perf_counter()
            np.copyto(segment.array, source)
            copied = time.perf_counter()
            segment.discard()
            del segment
            ended = time.perf_counter()
            for name, spent in zip(
                times, (created - began, copied - created, ended - copied), strict=True
            ):
                times[name].append(1e3 * spent)
    print(f"{options.mib} MiB, pages {check_pages(options.folder).result}; ms")
    print(f"{'':8} {'first':>7} {'again':>7}")
    for name, spent in times.items():
        print(f"{name:8} {spent[0]:7.1f} {statistics.median(spent[1:]):7.1f}")


if __name__ == "__main__":
    main()
