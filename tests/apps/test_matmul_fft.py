"""Matrix product and Fourier transform: verified runs, and errors that verification finds."""

from __future__ import annotations

import re

import pytest
from driver import run
from several_programs import outputs

SIZES = (1, 2, 3, 4, 6)
# Arguments (also with sizes that do not divide the matrix, and fewer rows than processes) and the
# beginning of the output.
PLAIN = {
    "matmul --n 60 --block 8": "matmul: n=60 block=8 repeat=1",
    "matmul --n 50 --block 7 --panels-per-iteration 3 --repeat 2": "matmul: n=50 block=7 repeat=2",
    "matmul --n 3 --block 2": "matmul: n=3 block=2 repeat=1",
    "fft2d --n 48 --iterations 4": "fft2d: 48 x 48 iterations=4",
    "fft2d --n 37 --columns 23 --iterations 5": "fft2d: 37 x 23 iterations=5",
    "fft2d --n 2 --columns 5 --iterations 0": "fft2d: 2 x 5 iterations=0",
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("arguments", PLAIN)
def test_plain_run_is_verified(size: int, arguments: str) -> None:
    printed = outputs(size, tuple(PLAIN))[arguments]
    line = rf"{PLAIN[arguments]} processors={size} max error (\S+) verified\n"
    found = re.fullmatch(line, printed)
    assert found, printed
    assert float(found[1]) < 1e-14


BROKEN = {
    "a panel is left out": (
        "matmul --n 40 --block 8",
        "right = m.add_panel;"
        "m.add_panel = lambda g, a, b, c, k, block: k == 3 or right(g, a, b, c, k, block)",
    ),
    "C is wrong": (
        "matmul --n 20 --block 8",
        "m.add_panel = lambda g, a, b, c, *more: c.local.fill(1)",
    ),
    "an element is not a number": (
        "matmul --n 20 --block 8",
        "m.add_panel = lambda g, a, b, c, *_: c.local.fill(0 if g.comm.rank else float('nan'))",
    ),
    "A and B are exchanged": (
        "matmul --n 20 --block 8",
        "right = m.add_panel; m.add_panel = lambda g, a, b, c, *more: right(g, b, a, c, *more)",
    ),
    "rows are exchanged": (
        "fft2d --n 20 --columns 12 --iterations 3",
        "right = m.transpose; m.transpose = lambda comm, part, n: right(comm, part[::-1], n)",
    ),
    "the inverse is a forward transform": (
        "fft2d --n 20 --iterations 0",
        "right = m.transform; m.transform = lambda comm, x, inverse: right(comm, x, True)",
    ),
    "an element is not a number in the end": (
        "fft2d --n 20 --iterations 0",
        "m.transform = lambda comm, x, inverse: x.local.fill(float('nan'))",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_verification_finds_a_broken_program(fault: str) -> None:
    """The verification can fail."""
    arguments, patch = BROKEN[fault]
    name, *options = arguments.split()
    code = f"import sys, apps.{name} as m; sys.argv[1:] = {options}; {patch}; sys.exit(m.main())"
    done = run(2, "-c", code)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"{name}: ")
    assert done.stdout.endswith(" WRONG\n")


def test_communicators_of_the_grid_are_made_once_for_a_size() -> None:
    code = (
        "import sys, apps.matmul as m; right, rows = m.add_panel, [];"
        "m.add_panel = lambda g, *more: (rows.append(g.row), right(g, *more));"
        "sys.argv[1:] = '--n 20 --block 2 --repeat 2'.split(); m.main();"
        "sys.exit((len(rows), len(set(map(id, rows)))) != (20, 1))"
    )
    assert run(2, "-c", code).returncode == 0


@pytest.mark.parametrize(
    "arguments", ["matmul --block 0", "matmul --n -3", "fft2d --columns -1", "fft2d --columns 0"]
)
def test_errors_name_bad_values(arguments: str) -> None:
    name, option, _ = arguments.split()
    assert f"python -m apps.{name}" in run(1, "-m", f"apps.{name}", "--help").stdout
    done = run(1, "-m", *f"apps.{arguments}".split())
    assert done.returncode == 2
    assert option in done.stderr.splitlines()[-1]
