"""`reshape try`: what it finds in programs, and what it says of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from paths import ROOT

HEAD = """
import sys
import numpy as np
from mpi4py import MPI
import reshape
"""
CORRECT = (
    HEAD
    + """
with reshape.application() as app:
    u = app.rows("u", (24,))
    if app.is_fresh_start:
        u.local[:] = u.layout.global_indices(app.comm.rank)[0]
        app.state["sums"] = []
    for step in app.iterations(40):
        part = u.local  # is bound until the next iteration, also across a resize
        part[:] += 0.1
        app.state["names"] = {"u", "v", str(step)}  # pickled in another order on each rank
        app.state["sums"].append(app.comm.allreduce(float(u.local.sum())))
    app.report(total=app.state["sums"][-1])
    u.save("u.npy")
    if app.comm.rank == 0:
        print("sums", *app.state["sums"])
"""
)


def attempt(folder: Path, program: str, *options: str, ends: str = "") -> tuple[int, str]:
    """Exit code and output of the command; checks that it leaves nothing behind.

    Parameters
    ----------
    ends : the command is terminated when it has printed this line; if empty, it ends by itself.
    """
    (folder / "program.py").write_text(program)
    scratch = folder / ".scratch"
    scratch.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "reshape", "try", *options, "--", "python", "program.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    text = ""
    assert process.stdout is not None
    while ends and ends not in text:
        text += process.stdout.readline()
    if ends:
        process.send_signal(signal.SIGTERM)
    text += process.communicate(timeout=200)[0]
    print(text)
    assert sorted(path.name for path in folder.iterdir()) == [".scratch", "program.py"]
    assert list(scratch.iterdir()) == []
    assert list(Path("/dev/shm").glob(f"reshape-try-{process.pid}-*")) == []
    return process.returncode, text


def test_a_correct_program_is_equal(temporary: Path) -> None:
    code, text = attempt(
        temporary, CORRECT, "-n", "3", "--max", "5", "--seed", "2", "--resizes", "5"
    )
    assert code == 0
    assert text.startswith("5 resizes at random, --seed 2:\n  at ")
    assert "rank 0 leaves" in text
    assert "after 5 resizes" in text.splitlines()[-1]


def test_checkpoints_at_other_iterations_are_no_difference(temporary: Path) -> None:
    """As with a time between checkpoints; here the interval depends on the folders of the runs."""
    every = "app.checkpoint(every=6 + len(__import__('os').listdir('../..')))"
    program = CORRECT.replace("as app:\n", f"as app:\n    {every}\n")
    code, text = attempt(temporary, program, "-n", "1", "--at", "7:2")
    assert code == 0, text


def test_a_program_that_restarts_where_it_was_is_equal(temporary: Path) -> None:
    """The group that joins is killed, the job is killed within a resize, and at a resize point."""
    program = CORRECT.replace("as app:\n", "as app:\n    app.checkpoint(every=3)\n")
    code, text = attempt(
        temporary, program, "-n", "2", "--max", "4", "--seed", "63", "--resizes", "9", "--kill"
    )
    assert code == 0
    assert "processes, the joining group is killed" in text
    assert "processes, the job is killed within" in text
    assert "the job is killed and restarts with 2 processes" in text


def appending(block: str) -> str:
    """Program with a loop of the page docs/checkpoints.md."""
    loop = indent(block.replace("5000", "40").replace("...", "energy = step / 7"), "    ")
    head = f"{HEAD}\nwith reshape.application() as app:\n    app.checkpoint(every=3)\n"
    return f'{head}    if app.is_fresh_start:\n        app.state["written"] = 0\n{loop}'


@pytest.mark.parametrize("cuts", [True, False])
def test_a_program_that_appends_to_a_file(temporary: Path, cuts: bool) -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    (block,) = (
        found for found in re.findall(r"```python\n(.*?)```", page, re.S) if "truncate" in found
    )
    program = appending(block if cuts else re.sub(r"file\.truncate.*", "pass", block))
    options = ["-n", "1", "--max", "2", "--seed", "3", "--resizes", "3", "--kill"]
    code, text = attempt(temporary, program, *options)
    assert "the job is killed and restarts" in text
    assert code == (0 if cuts else 1), text
    assert ("a checkpoint does not hold the files" in text) is not cuts
    assert ("file run.log only with resizes: line" in text) is not cuts
    assert "file run.log only without resizes" not in text


LOOP = (
    HEAD
    + """
class Solver:
    cart = edge = win = file = None

solver = Solver()
with reshape.application() as app:
    u = app.rows("u", (24,))
    for step in app.iterations(30):
        USE
        app.comm.Barrier()
"""
)
#: Kind of mistake -> code in the loop, and what is said of it.
MISTAKES = {
    "communicator": (
        "if solver.cart is None:\n"
        "            solver.cart = app.comm.Create_cart([app.comm.size])\n"
        "        solver.cart.Barrier()",
        "program.py:16 uses a communicator that program.py:15 made before a resize",
    ),
    "window": (
        "if solver.win is None:\n"
        "            solver.win = MPI.Win.Allocate(8, comm=app.comm)\n"
        "        solver.win.Fence()",
        "program.py:16 uses a window that program.py:15 made before a resize",
    ),
    "file": (
        "if solver.file is None:\n"
        "            solver.file = MPI.File.Open(app.comm, __file__)\n"
        "        solver.file.Get_size()",
        "program.py:16 uses a file that program.py:15 made before a resize",
    ),
    "world": (
        "app.comm.size == 3 and MPI.COMM_WORLD.Barrier()",
        "use app.comm, and read it again in each iteration",
    ),
    "view": (
        "if solver.edge is None:\n"
        "            solver.edge = u.local[:1]\n"
        "        app.state['edge'] = float(solver.edge[0])",
        "Segmentation fault, at program.py:16 in <module>: app.state['edge'] =",
    ),
    "state": (
        "app.state['rank'] = {app.comm.rank}",
        "app.state['rank'] differs between ranks: {0} on rank 0, {1} on rank 1",
    ),
    "apart": (
        "if step == 5 and app.comm.rank == 1:\n            break",
        "  rank 0 is in iteration 5\n      program.py:16 in <module>: app.comm.Barrier()\n"
        "  rank 1 is behind the loop\n",
    ),
}


LONG = {"window", "file", "world"}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.long] * (kind in LONG)) for kind in MISTAKES],
)
def test_each_kind_of_mistake_is_named(temporary: Path, kind: str) -> None:
    use, why = MISTAKES[kind]
    program = LOOP.replace("USE", use)
    code, text = attempt(temporary, program, "-n", "2", "--at", "10:3,20:2", "--limit", "20")
    assert code == 1
    assert why in text


def test_communicators_that_are_not_freed_are_counted(temporary: Path) -> None:
    """They are no mistake: a program of few iterations ends before MPI has no more of them."""
    program = LOOP.replace("USE", "app.comm.Dup()")
    code, text = attempt(temporary, program, "-n", "2", "--at", "10:3")
    assert code == 0
    assert re.search(
        r"^note: 30 communicators, .* not freed, 30 of them at program.py:14$", text, re.M
    )


def test_what_is_not_registered_is_named(temporary: Path) -> None:
    program = (
        CORRECT.replace('app.state["sums"] = []', "")
        .replace('app.state["sums"]', "sums")
        .replace("for step", "sums = []\n    for step")
    )
    code, text = attempt(temporary, program, "-n", "1", "--at", "10:3,20:2")
    assert code == 1
    assert "mistake: output only with resizes: sums " in text
    assert "u.npy" not in text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["-n", "3"], "give --max for random resizes, or --at"),
        (["-n", "3", "--max", "2"], "--max 2 is below -n 3"),
        (["-n", "1", "--max", "1"], "--max 1: the program can have no size but 1"),
        (["-n", "3", "--at", "5:4,9:2"], "--at 9:2: the groups of the job have 3 and 1 processes"),
        (
            ["-n", "1", "--at", "50:2"],
            "--at 50:2: the program has no resize point there; it has 39",
        ),
    ],
)
def test_impossible_resizes_are_wrong_usage(temporary: Path, options: list[str], why: str) -> None:
    code, text = attempt(temporary, CORRECT, *options)
    assert code == 2
    assert why in text


def test_a_program_that_does_not_exist_is_wrong_usage(temporary: Path) -> None:
    options = ["-n", "1", "--max", "2", "--", "nosuch"]
    code, text = attempt(temporary, CORRECT, *options)  # python program.py are its arguments
    assert code == 2
    assert "there is no program 'nosuch' on PATH" in text


def test_sizes_are_those_of_the_topology(temporary: Path) -> None:
    program = CORRECT.replace("application()", "application('power-of-2')")
    code, text = attempt(temporary, program, "-n", "2", "--at", "5:3")
    assert code == 2
    assert "declares the topology power-of-2, which does not allow 3 processes" in text


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (HEAD + "print(1)", "mistake: the program has no resize point"),
        (CORRECT.replace("+= 0.1", "+= 1 / (step - 5)"), "mistake, without resizes: ZeroDivision"),
        (
            CORRECT.replace("part[:] +=", "app.comm.size == 2 and sys.exit(3); part[:] +="),
            "mistake, with resizes: a process ends with exit code 3",
        ),
        (
            CORRECT.replace('"u", (24,)', '"u", (24 + (app.comm.size == 2),)'),
            "mistake, with resizes: the resize to 3 processes is rolled back: the job has",
        ),
    ],
    ids=["no loop", "fails at once", "fails later", "registers otherwise"],
)
def test_a_program_that_fails(temporary: Path, program: str, why: str) -> None:
    code, text = attempt(temporary, program, "-n", "1", "--at", "10:3,20:2")
    assert code == 1
    assert why in text


def test_a_command_that_is_terminated_leaves_nothing_behind(temporary: Path) -> None:
    """While its job computes at another size."""
    program = CORRECT.replace("part[:] +=", "print(step, flush=True); part[:] +=")
    code, _ = attempt(
        temporary, program, "-n", "2", "--at", "5:3,20:2", ends="at 20: to 2 processes"
    )
    assert code == 128 + signal.SIGTERM
