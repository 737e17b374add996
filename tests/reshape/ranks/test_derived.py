"""Communicators, windows and files that a program makes, after a resize."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from driver import Driver
from mpi4py import MPI

from reshape.ranks.derived import count, owned_by, watch

PROGRAM = """
import numpy as np
from mpi4py import MPI
import reshape

class Solver:
    comm = of = None

kept, world = Solver(), MPI.COMM_WORLD.Dup()
with reshape.application(topology="arbitrary") as app:
    app.rows("a", (10,))
    if app.is_fresh_start:
        MAKE
    for step in app.iterations(30):
        if vars(kept):
            USE
"""


def program(folder: Path, make: str, use: str) -> tuple[str, int, int]:
    """Write a program that makes something above its loop, and uses it in all of them.

    Returns
    -------
    its path, and the numbers of the lines of the two.
    """
    path = folder / "program.py"
    path.write_text(PROGRAM.replace("MAKE", make).replace("USE", use))
    lines = PROGRAM.splitlines()
    return str(path), lines.index("        MAKE") + 1, lines.index("            USE") + 1


def resize(driver: Driver) -> None:
    """Let the job compute for two iterations, expand it, and let it compute again."""
    driver.start(2, "first")
    driver.serve(lambda: driver.points > 2)
    assert driver.expand(1).ok


@pytest.mark.parametrize(
    ("make", "use", "what"),
    [
        ("kept.comm = app.comm.Split(0)", "kept.comm.Barrier()", "communicator"),
        ("kept.comm = app.comm.Create_cart([app.comm.size])", "kept.comm.Shift(0, 1)", ""),
        ("kept.rows = [app.comm.Create_cart([app.comm.size]).Sub([True])]",
         "kept.rows[0].allreduce(1)", "communicator"),
        ("kept.comm = app.comm.Idup()[0]", "kept.comm.size", "communicator"),
        ("kept.win = MPI.Win.Allocate(8, comm=app.comm)", "kept.win.Fence()", "window"),
        ("kept.file = MPI.File.Open(app.comm, __file__)", "kept.file.Get_size()", "file"),
    ],
    ids=["Split", "Create_cart", "Sub", "Idup", "Win", "File"],
)  # fmt: skip
def test_use_raises_and_names_both_lines(tmp_path: Path, make: str, use: str, what: str) -> None:
    path, made, used = program(tmp_path, make, use)
    with Driver(tmp_path, [path]) as driver:
        resize(driver)
        driver.serve(lambda: driver.groups[0].process.poll() is not None)
        text = driver.groups[0].text
        why = driver.faults[0].why
    kind = what or "communicator"
    note = f"{path}:{used} uses a {kind} that {path}:{made} made before a resize"
    assert note in text
    assert note in why


def test_what_exists_and_is_freed_raises_nothing(tmp_path: Path) -> None:
    """A communicator of before can be freed; one of MPI.COMM_SELF remains valid."""
    use = """pass
        if kept.of is not app.comm:
            if kept.comm is not None:
                kept.comm.Free()
                assert kept.comm == MPI.COMM_NULL
            kept.comm, kept.of, kept.own = app.comm.Dup(), app.comm, MPI.COMM_SELF.Dup()
        assert kept.comm.allreduce(1) == app.comm.size
        kept.own.Barrier()
"""
    path, *_ = program(tmp_path, "kept.own = MPI.COMM_SELF.Dup()", use)
    with Driver(tmp_path, [path]) as driver:
        resize(driver)
        assert driver.contract(0).ok
        driver.finish()


def test_what_has_its_origin_in_comm_self_remains(tmp_path: Path) -> None:
    """Also in a job of one process, whose own communicators have one process, too."""
    make = """first = MPI.COMM_SELF.Dup()
        kept.own = first.Create_cart([1])
        first.Free()
        kept.file = MPI.File.Open(MPI.COMM_SELF, __file__)
        kept.win = MPI.Win.Allocate(8, comm=MPI.COMM_SELF)
        kept.of_job = app.comm.Dup()
"""
    use = """kept.win.Fence()
            assert kept.file.Get_size() > 0
            assert kept.own.allreduce(1) == 1
            assert (kept.of_job == MPI.COMM_NULL) == (app.comm.size == 2)
"""
    path, *_ = program(tmp_path, make, use)
    with Driver(tmp_path, [path]) as driver:
        driver.start(1, "first")
        driver.serve(lambda: driver.points > 2)
        assert driver.expand(1).ok
        driver.finish()


@pytest.mark.mpi(min_size=2)
def test_those_that_exist_are_counted_and_freed_ones_are_not() -> None:
    """What nothing refers to exists; the record of what is freed does not grow."""
    watch()
    comm = MPI.COMM_WORLD
    assert count() == ""
    kept = comm.Dup()
    for _ in range(500):
        comm.Split(0).Free()
    for _ in range(3):
        comm.Dup()
    inner = sys._getframe().f_lineno - 1
    assert count().startswith("4 communicators")
    assert f"3 of them at {__file__}:{inner}" in count()
    for _ in range(500):
        comm.Split(0).Free()
    kept.Free()
    assert count().startswith("3 communicators")


@pytest.mark.mpi(min_size=2)
def test_a_finaliser_may_free_a_communicator_at_any_moment() -> None:
    """Also while the record is worked through, in which each free counts."""

    class Held:
        def __init__(self) -> None:
            self.comm, self.itself = MPI.COMM_SELF.Dup(), self

        def __del__(self) -> None:
            self.comm.Free()

    watch()
    before, thresholds = count(), gc.get_threshold()
    gc.set_threshold(1)
    try:
        with owned_by("a test"):
            for _ in range(500):
                Held()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert count() == before


#: Handles of freed communicators are given again, the last one first.
IN_ORDER = """
from mpi4py import MPI
from reshape.ranks import derived
derived.watch()
freed = []
key = MPI.Comm.Create_keyval(delete_fn=lambda comm, key, name: freed.append(name))
for comm in [MPI.COMM_SELF.Dup() for _ in range(3)]:
    comm.Free()
with derived.owned_by("a function"):
    made = [MPI.COMM_SELF.Dup() for _ in range(3)]
for name, comm in enumerate(made):
    comm.Set_attr(key, name)
derived.free("a function")
assert freed == [2, 1, 0], freed
"""


def test_the_communicator_that_was_made_last_is_freed_first() -> None:
    subprocess.run([sys.executable, "-c", IN_ORDER], check=True, timeout=60)


def test_a_communicator_of_one_process_of_several_remains(tmp_path: Path) -> None:
    path, *_ = program(
        tmp_path, "kept.own = app.comm.Split(app.comm.rank)", "assert kept.own.allreduce(1) == 1"
    )
    with Driver(tmp_path, [path]) as driver:
        resize(driver)
        driver.finish()


def test_what_was_made_above_the_block_is_of_the_first_size(tmp_path: Path) -> None:
    path, _, used = program(tmp_path, "kept.made = True", "world.Barrier()")
    with Driver(tmp_path, [path]) as driver:
        resize(driver)
        driver.serve(lambda: driver.groups[0].process.poll() is not None)
        text = driver.groups[0].text
    assert f"{path}:{used} uses a communicator that {path}:9 made before a resize" in text


def test_a_program_that_frees_none_is_warned(tmp_path: Path) -> None:
    path, made, _ = program(
        tmp_path, "kept.all = [app.comm.Dup() for _ in range(1200)]", "app.comm.Barrier()"
    )
    with Driver(tmp_path, [path]) as driver:
        driver.start(2, "first")
        lines = driver.finish().splitlines()
    warnings = [line for line in lines if "free what is not used any more" in line]
    assert len(warnings) == 2  # of two ranks, once each
    assert f"of them at {path}:{made}" in warnings[0]
