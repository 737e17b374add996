"""Every application is verified after expansions and contractions, with every kind of topology."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import Driver

from reshape.topology import Topology

# Arguments with which all resizes below happen during the computation; the measure of the error and
# its largest valid value.
PROGRAMS = {
    "jacobi --n 70 --iterations 40": ("max_error", 1e-12),
    "lu --n 160 --block 4": ("residual", 16.0),
    "synthetic --seconds 0 --mib 2 --iterations 40": ("mib", 2),
    "triad --mib 2 --sweeps 1 --iterations 40": ("mb_per_s", 1e9),
    "fft2d --n 45 --columns 31 --iterations 41": ("max_error", 1e-12),
    "masterworker --tasks 300 --batch 1": ("max_error", 1e-8),
}
# A number: processes that join; a tuple: groups that leave, numbered in the order of joining.
RESIZES: dict[str, list[int | tuple[int, ...]]] = {
    "nearly-square": [2, 2, 2, (0, 1), 2, (2,)],
    "power-of-2": [1, 1, 2, (0, 1), 2, (2,)],
    "arbitrary": [1, 3, 1, (0, 2)],
}
SIZES = {
    "nearly-square": [2, 4, 6, 2, 4, 2],
    "power-of-2": [1, 2, 4, 2, 4, 2],
    "arbitrary": [1, 4, 5, 3],  # grids of 1 x 1, 2 x 2, 1 x 5 and 1 x 3
}
# The runtime knows the topology, an application only the sizes that follow from it. So programs on
# grids of processes have all topologies, the others one.
ROWS = {
    "jacobi": "power-of-2",
    "synthetic": "nearly-square",
    "triad": "power-of-2",
    "fft2d": "arbitrary",
    "masterworker": "arbitrary",
}
#: In `make test`: each topology, and each kind of data: blocks, rows, work items.
QUICK = {"lu-nearly-square", "jacobi-power-of-2", "masterworker-arbitrary"}


def cases() -> Iterator[Any]:
    """Yield every program with its topologies."""
    for arguments in PROGRAMS:
        program = arguments.split()[0]
        for topology in [ROWS[program]] if program in ROWS else RESIZES:
            name = f"{program}-{topology}"
            marks = [] if name in QUICK else [pytest.mark.long]
            yield pytest.param(arguments, topology, marks=marks, id=name)


@pytest.mark.parametrize(("arguments", "topology"), list(cases()))
def test_result_is_verified_after_resizes(tmp_path: Path, arguments: str, topology: str) -> None:
    """With each topology the original group leaves."""
    program, *options = arguments.split()
    start, *resizes = RESIZES[topology]
    sizes: list[int] = []

    def note_size() -> None:
        """Let the job compute at its new size, and note the size of its communicator."""
        met = driver.points
        driver.serve(lambda: driver.points > met)
        assert driver.latest is not None
        sizes.append(driver.latest.size)

    with Driver(tmp_path, ["-m", f"apps.{program}", *options, "--topology", topology]) as driver:
        driver.welcome.verify = True
        assert isinstance(start, int)
        driver.start(start, "first")
        note_size()
        for step in resizes:
            assert (driver.contract(*step) if isinstance(step, tuple) else driver.expand(step)).ok
            note_size()
        text = driver.finish()
    assert sizes == SIZES[topology]
    assert {*sizes} <= {*Topology.parse(topology).valid_sizes(start, max(sizes))}
    assert driver.hellos[0].topology == Topology.parse(topology)
    assert re.search(rf"{program}: .* processors={sizes[-1]} .*verified\n", text)
    assert driver.facts["verified"] is True
    measure, limit = PROGRAMS[arguments]
    value = driver.facts[measure]
    assert isinstance(value, int | float)
    assert value <= limit
