"""MPI.COMM_WORLD in a job that resizes: it raises an error, and never gives a wrong result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driver import Driver, run

from reshape.ranks.world import NOTE

#: A program as mpi4py's tutorials begin it. It prints which uses of its communicator succeed
#: whenever that changes, and runs until it is told to stop, then a last statement.
PROGRAM = """
import os, sys, time
from mpi4py import MPI
import numpy as np
import reshape

comm = MPI.COMM_WORLD

def succeeds(use):
    try:
        use()
    except MPI.Exception:
        return False
    return True

USES = {
    "rank": lambda: comm.rank,
    "size": lambda: comm.Get_size(),
    "bcast": lambda: comm.bcast(0),
    "Allreduce": lambda: comm.Allreduce(np.ones(1), np.ones(1)),
    "send": lambda: comm.send(1, MPI.PROC_NULL),
    "Isend": lambda: comm.Isend(np.ones(1), MPI.PROC_NULL).Wait(),
    "Split": lambda: comm.Split(0).Free(),
}

def exists(app, name):
    return app.comm.bcast(os.path.exists(name), root=0)

def program(folder, last):
    shown, finish = None, f"{folder}/finish"
    with reshape.application(topology="arbitrary") as app:
        app.rows("a", (10,))
        app.state["odd"] = lambda: 0
        for step in app.iterations(10**9):
            time.sleep(0.01)
            if exists(app, f"{folder}/repair"):
                app.state.clear()
            done = [name for name, use in USES.items() if succeeds(use)]
            if done != shown:
                print("succeed:", " ".join(done) or "none", flush=True)
                shown = done
            if exists(app, finish):
                exec(last["in"])
                break
    exec(last["after"])

folder, last = sys.argv[1:]
program(folder, {"in": "", "after": ""} | dict([last.split(":", 1)]))
"""
ALL = "succeed: rank size bcast Allreduce send Isend Split\n"
NONE = "succeed: none\n"


@contextmanager
def job(folder: Path, last: str = "in:pass") -> Iterator[Driver]:
    """Yield a job whose last statement is ``in:...`` or ``after:...`` the block."""
    path = folder / "program.py"
    path.write_text(PROGRAM)
    with Driver(folder, [str(path), str(folder), last]) as driver:
        yield driver


def resized(driver: Driver, folder: Path, size: int = 1) -> None:
    """Start a job, expand it by one process, and let it finish."""
    (folder / "repair").touch()
    driver.start(size, "first")
    assert driver.expand(1).ok
    (folder / "finish").touch()


def end(driver: Driver, number: int = 0) -> tuple[int, str]:
    """Return exit code and output of a group."""
    group = driver.groups[number]
    driver.serve(lambda: group.process.poll() is not None)
    return group.process.returncode, group.text


def test_it_is_valid_until_a_resize_is_committed(tmp_path: Path) -> None:
    """Not after one that is rolled back; in the joining process from the block's begin."""
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        assert "app.state['odd'] cannot be pickled" in driver.expand(1).why
        points = driver.points
        driver.serve(lambda: driver.points > points + 5)
        assert first.text == 2 * ALL
        (tmp_path / "repair").touch()
        driver.serve(lambda: driver.points > points + 10)
        assert driver.expand(1).ok
        assert driver.contract(0).ok
        points = driver.points
        driver.serve(lambda: driver.points > points + 5)
        (tmp_path / "finish").touch()
        driver.finish()
        assert first.text == 2 * ALL + 2 * NONE
        assert driver.groups[2].text == NONE


def test_a_job_that_is_not_resized_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "finish").touch()
    with job(tmp_path, "after:comm.Barrier()") as driver:
        driver.start(2, "first")
        assert driver.finish() == 2 * ALL
        done = run(2, *driver.command[1:])
        assert (done.returncode, done.stdout) == (0, 2 * ALL)


@pytest.mark.parametrize("where", ["in", "after"])
@pytest.mark.parametrize("size", [1, 2])
def test_its_error_says_what_to_use(tmp_path: Path, size: int, where: str) -> None:
    """At the end of the traceback, and to the service."""
    with job(tmp_path, f"{where}:print(comm.rank)") as driver:
        resized(driver, tmp_path, size)
        code, text = end(driver)
        assert code == 1
        *_, last = text.partition("\n\n=")[0].rpartition("\nmpi4py.MPI.Exception: ")
        assert last.splitlines()[3] == NOTE, text
        why = next(fault.why for fault in driver.faults if fault.group == 0)
        assert why == f"mpi4py.MPI.Exception: Invalid communicator; {NOTE}"


@pytest.mark.parametrize(
    "statement",
    [
        "comm.Abort(7)",
        "sys.excepthook = lambda *_: comm.Abort(7); raise ValueError",
        "import threading; threading.Thread(target=lambda: MPI.COMM_WORLD.Abort(7)).start()",
    ],
)
def test_abort_still_ends_the_world(tmp_path: Path, statement: str) -> None:
    """Another rank of the world waits for the one that aborts."""
    last = f"after:\nif os.environ['PMI_RANK'] == '1': {statement}\ntime.sleep(300)"
    with job(tmp_path, last) as driver:
        resized(driver, tmp_path, 2)
        assert end(driver)[0] == 7
