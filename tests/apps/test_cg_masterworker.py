"""Conjugate gradients and the task queue: verified runs, and errors that verification finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from driver import run
from scipy.io import mmwrite
from scipy.sparse import csr_array, diags_array, random_array
from several_programs import outputs

CG = r"cg: unknowns={} steps=(\d+) processors={} residual \S+ max error \S+ verified\n"
TASKS = r"masterworker: tasks={} processors={} max error \S+ verified\n"


LAPLACIANS = {n: f"cg --n {n} --steps-per-iteration 3" for n in (1, 2, 23)}
QUEUES = {
    0: "masterworker --tasks 0",
    5: "masterworker --tasks 5 --batch 1",
    200: "masterworker --tasks 200 --batch 7",
}
PLAIN = (*LAPLACIANS.values(), *QUEUES.values())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("n", LAPLACIANS)
def test_cg_on_the_laplacian(size: int, n: int) -> None:
    """Sizes include fewer unknowns than processes."""
    printed = outputs(size, PLAIN)[LAPLACIANS[n]]
    found = re.fullmatch(CG.format(n * n, size), printed)
    assert found, printed
    assert int(found[1]) <= 4 * n + 4  # grows with the square root of the condition


@pytest.mark.parametrize("size", [1, 4])
def test_cg_on_a_matrix_market_file(tmp_path: Path, size: int) -> None:
    """An uneven matrix: an arrow of full rows and columns, and random entries."""
    rng = np.random.default_rng(5)
    half = random_array((60, 60), density=0.05, rng=rng).tolil()
    half[:3] = 1.0
    matrix = csr_array(half + half.T + diags_array(np.full(60, 130.0)))
    mmwrite(tmp_path / "arrow.mtx", matrix, symmetry="symmetric")
    done = run(size, "-m", "apps.cg", "--matrix", str(tmp_path / "arrow.mtx"))
    assert re.fullmatch(CG.format(60, size), done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("tasks", QUEUES)
def test_tasks_are_done_once_each(size: int, tasks: int) -> None:
    printed = outputs(size, PLAIN)[QUEUES[tasks]]
    assert re.fullmatch(TASKS.format(tasks, size), printed), printed


BROKEN = {
    "not converged": ("cg --n 20 --iterations 5", ""),
    "the matrix is wrong": (
        "cg --n 12",
        "right = m.fill; m.fill = lambda comm, A, o: (right(comm, A, o), A.local.data.__imul__(2))",
    ),
    "a direction is not updated": (
        "cg --n 12 --iterations 99",
        "right = m.dot; m.dot = lambda comm, u, v: right(comm, u, u)",
    ),
    "a task is done twice": (
        "masterworker --tasks 20",
        "right = m.work; m.work = lambda t, r, b: (right(t, r, b), r.local.append(r.local[0]))",
    ),
    "a task is lost": (
        "masterworker --tasks 20",
        "right = m.work; m.work = lambda t, r, b: (t.local and t.local.pop(), right(t, r, b))",
    ),
    "an integral is wrong": (
        "masterworker --tasks 20",
        "right = m.integrate; m.integrate = lambda *a: right(*a) + 1e-6",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_verification_finds_a_broken_program(fault: str) -> None:
    """The verification can fail."""
    arguments, patch = BROKEN[fault]
    name, *options = arguments.split()
    code = f"import sys, apps.{name} as m; sys.argv[1:] = {options}; {patch}\nsys.exit(m.main())"
    done = run(2, "-c", code)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"{name}: ")
    assert done.stdout.endswith(" WRONG\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("cg --n 0", "--n"),
        ("cg --matrix missing.mtx", "--matrix missing.mtx"),
        ("masterworker --batch 0", "--batch"),
    ],
)
def test_errors_name_bad_values(arguments: str, named: str) -> None:
    name = arguments.split()[0]
    assert f"python -m apps.{name}" in run(1, "-m", f"apps.{name}", "--help").stdout
    done = run(1, "-m", *f"apps.{arguments}".split())
    assert done.returncode == 2
    assert named in done.stderr.splitlines()[-1]
