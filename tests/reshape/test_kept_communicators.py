"""A resizable program is warned of variables that keep communicators of one size."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import Driver

from scheduler.protocol import messages as m

PROGRAM = """
from mpi4py import MPI
import reshape

world = MPI.COMM_WORLD
own = MPI.COMM_SELF
freed = world.Dup()
freed.Free()
copy = world.Dup()
cart = world.Create_cart([2])
alone = world.Split(world.rank)
number = world.rank

def solve(app):
    pair = app.comm.Split(0)
    for step in app.iterations(4):
        comm = app.comm
        row = comm.Split(0)
        row.Free()

with reshape.application(topology="arbitrary") as app:
    app.rows("a", (10,))
    solve(app)
"""


@pytest.mark.parametrize("resizable", [True, False])
def test_variables_are_named_once(tmp_path: Path, resizable: bool) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with Driver(tmp_path, [str(path)]) as driver:
        driver.welcome = m.Welcome(resizable=resizable)
        driver.start(2, "first")
        lines = driver.finish().splitlines()
    assert all("derive it from app.comm in each iteration" in line for line in lines)
    names = [line.partition(" holds ")[0] for line in lines]
    kept = ["'copy' of the program", "'cart' of the program", "'pair' of solve() in __main__"]
    assert names == [f"variable {name}" for name in kept if resizable]
