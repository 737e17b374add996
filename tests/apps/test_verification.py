"""The applications find their own errors, and name bad values."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from app_runs import run_app
from driver import run
from mpi4py import MPI

from reshape.speedup import Prio

on_2_ranks = pytest.mark.mpi(min_size=2)
#: Arguments, a function of the application, and what makes the wrong one of the right one.
FAULTS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "nothing is computed": (
        "triad --mib 1",
        "apps.triad.triad",
        lambda right: lambda a, b, c, s: None,
    ),
    "no sweep": ("jacobi --n 20", "apps.jacobi.sweep", lambda right: lambda comm, u: None),
    "rows are not swapped": (
        "lu --n 40 --block 8",
        "apps.lu.swap_rows",
        lambda right: lambda *_: None,
    ),
    "data has changed": (
        "synthetic --seconds 0",
        "apps.synthetic.indices",
        lambda right: lambda a, rank: right(a, rank) + (1 if a.local.any() else 0),
    ),
    "a task is done twice": (
        "masterworker --tasks 20",
        "apps.masterworker.work",
        lambda right: lambda t, r, b: (right(t, r, b), r.local.append(r.local[0])),
    ),
    "a task is lost": (
        "masterworker --tasks 20",
        "apps.masterworker.work",
        lambda right: lambda t, r, b: (t.local and t.local.pop(), right(t, r, b)),
    ),
    "an integral is wrong": (
        "masterworker --tasks 20",
        "apps.masterworker.integrate",
        lambda right: lambda *a: right(*a) + 1e-6,
    ),
    "rows are exchanged": (
        "fft2d --n 20 --columns 12 --iterations 3",
        "apps.fft2d.transpose",
        lambda right: lambda comm, part, n: right(comm, part[::-1], n),
    ),
    "the inverse is a forward transform": (
        "fft2d --n 20 --iterations 0",
        "apps.fft2d.transform",
        lambda right: lambda comm, x, inverse: right(comm, x, True),
    ),
    "an element is not a number in the end": (
        "fft2d --n 20 --iterations 0",
        "apps.fft2d.transform",
        lambda right: lambda comm, x, inverse: x.local.fill(float("nan")),
    ),
}


@on_2_ranks
@pytest.mark.parametrize("fault", FAULTS)
def test_verification_finds_a_broken_program(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The verification can fail."""
    arguments, function, wrong = FAULTS[fault]
    module, _, name = function.rpartition(".")
    monkeypatch.setattr(function, wrong(getattr(import_module(module), name)))
    code, output = run_app(monkeypatch, MPI.COMM_WORLD, arguments)
    assert code == 1
    if MPI.COMM_WORLD.rank == 0:
        assert output.startswith(f"{arguments.split()[0]}: ")
        assert output.endswith(" WRONG\n")


def test_a_result_that_is_not_verified_is_the_exit_code_of_the_program() -> None:
    program = (
        "import sys; from apps import jacobi; jacobi.sweep = lambda comm, u: None;"
        " sys.argv[1:] = ['--n', '20']; sys.exit(jacobi.main())"
    )
    done = run(2, "-c", program)
    assert done.returncode == 1
    assert done.stdout.endswith(" WRONG\n")


@on_2_ranks
def test_communicators_of_the_grid_are_made_once_for_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lu, rows = import_module("apps.lu"), []
    right = lu.eliminate
    monkeypatch.setattr(lu, "eliminate", lambda g, *more: (rows.append(g.row), right(g, *more))[1])
    assert run_app(monkeypatch, MPI.COMM_WORLD, "lu --n 20 --block 2 --repeat 2")[0] == 0
    assert len(rows) == 20
    assert len(set(map(id, rows))) == 1


@on_2_ranks
@pytest.mark.parametrize(("options", "alpha"), [("", 0.8), (" --speedup prio:alpha=0.5", 0.5)])
def test_synthetic_sleeps_as_long_as_its_model_gives(
    monkeypatch: pytest.MonkeyPatch, options: str, alpha: float
) -> None:
    slept: list[float] = []
    own_time = SimpleNamespace(**vars(time) | {"sleep": slept.append})
    monkeypatch.setattr("apps.synthetic.time", own_time)
    arguments = f"synthetic --seconds 0.2 --start-size 1 --mib 0 --iterations 5{options}"
    assert run_app(monkeypatch, MPI.COMM_WORLD, arguments)[0] == 0
    assert slept == pytest.approx([0.2 / Prio(alpha).factor(1, 2)] * 5)


@on_2_ranks
@pytest.mark.parametrize("name", ["jacobi", "lu", "synthetic", "triad", "masterworker", "fft2d"])
def test_help_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        import_module(f"apps.{name}").main()
    assert end.value.code == 0
    assert f"python -m apps.{name}" in capsys.readouterr().out


@on_2_ranks
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("jacobi --n -1", "--n"),
        ("lu --block -1", "--block"),
        ("synthetic --mib -1", "--mib"),
        ("triad --mib -1", "--mib"),
        ("masterworker --batch 0", "--batch"),
        ("fft2d --columns -1", "--columns"),
        ("fft2d --columns 0", "--columns"),
    ],
)
def test_errors_name_bad_values(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    named: str,
) -> None:
    with pytest.raises(SystemExit) as end:
        run_app(monkeypatch, MPI.COMM_WORLD, arguments)
    assert end.value.code == 2
    assert named in capsys.readouterr().err.splitlines()[-1]
