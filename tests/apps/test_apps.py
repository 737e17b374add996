"""Jacobi, LU and the synthetic job: verified runs, and errors that the verification finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from driver import run
from several_programs import outputs

from reshape.speedup import Prio

PLAIN = {
    "jacobi --n 60 --iterations 30": r"jacobi: n=60 iterations=30 processors={} max error 0\.0",
    "jacobi --n 3 --iterations 2 --sweeps 4": r"jacobi: n=3 iterations=2 processors={} max error",
    "lu --n 100 --block 8": r"lu: n=100 block=8 repeat=1 processors={} residual \d\.\d\de-0\d",
    "lu --n 50 --block 7 --panels-per-iteration 3 --repeat 2": r"lu: n=50 .* processors={} resid",
    "lu --n 5 --block 8": r"lu: n=5 block=8 repeat=1 processors={} residual",
    "synthetic --seconds 0 --mib 1": r"synthetic: iterations=7 processors={} 1 MiB",
    "synthetic --seconds 0 --mib 0 --iterations 0": r"synthetic: iterations=0 processors={} 0 MiB",
    "triad --mib 1 --iterations 4": r"triad: 1 MiB iterations=4 processors={} \d+ MB/s a process",
    "triad --mib 1 --iterations 0": r"triad: 1 MiB iterations=0 processors={} 0 MB/s a process",
}


@pytest.mark.parametrize("size", [1, 4, 6])
@pytest.mark.parametrize("arguments", PLAIN)
def test_plain_run_is_verified(size: int, arguments: str) -> None:
    printed = outputs(size, tuple(PLAIN))[arguments]
    assert re.fullmatch(PLAIN[arguments].format(size) + ".* verified\n", printed), printed


BROKEN = {
    "triad --mib 1": "import apps.triad as m; m.triad = lambda a, b, c, s: None",
    "jacobi --n 20": "import apps.jacobi as m; m.sweep = lambda comm, u: None",
    "lu --n 40 --block 8": (
        "import apps.factor, apps.lu as m; apps.factor.swap_rows = lambda *_: None"
    ),
    "synthetic --seconds 0": (
        "import apps.synthetic as m; right = m.indices;"
        "m.indices = lambda a, r: right(a, r) + (1 if a.local.any() else 0)"
    ),
}


@pytest.mark.parametrize("arguments", BROKEN)
def test_verification_finds_a_broken_program(arguments: str) -> None:
    """The verification can fail."""
    name, *options = arguments.split()
    code = f"{BROKEN[arguments]}; import sys; sys.argv[1:] = {options}; sys.exit(m.main())"
    done = run(2, "-c", code)
    assert done.returncode == 1
    assert done.stdout.startswith(name)
    assert done.stdout.endswith("WRONG\n")


@pytest.mark.parametrize("name", ["jacobi", "lu", "synthetic", "triad"])
def test_help_and_bad_values(name: str) -> None:
    assert f"python -m apps.{name}" in run(1, "-m", f"apps.{name}", "--help").stdout
    option = {"jacobi": "--n", "lu": "--block", "synthetic": "--mib", "triad": "--mib"}[name]
    done = run(1, "-m", f"apps.{name}", option, "-1")
    assert done.returncode == 2
    assert f"{option}" in done.stderr.splitlines()[-1]


def test_jacobi_continues_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = ["apps.jacobi", "--n", "60", "--iterations", "30", "--checkpoint", "10"]
    assert run(2, "-m", *first).returncode == 0
    more = ["apps.jacobi", "--n", "60", "--iterations", "45", "--checkpoint", "10"]
    done = run(3, "-m", *more, RESHAPE_RESTART_FROM="checkpoints")
    assert done.stdout == "jacobi: n=60 iterations=45 processors=3 max error 0.0e+00 verified\n"
    left = sorted(each.name for each in (tmp_path / "checkpoints").glob("iteration-*"))
    assert left == ["iteration-30", "iteration-40"]


def test_synthetic_sleeps_as_long_as_its_model_gives() -> None:
    done = run(
        *(2, "-m", "apps.synthetic", "--seconds", "0.2", "--start-size", "1", "--mib", "0"),
        *("--iterations", "5", "--alpha", "0.8"),
    )
    assert done.returncode == 0
    code = (
        "import sys, time; import apps.synthetic as m; sleep, slept = time.sleep, [];"
        "m.time.sleep = lambda s: (slept.append(s), sleep(s));"
        "sys.argv[1:] = '--seconds 0.2 --start-size 1 --mib 0 --iterations 5'.split();"
        "m.main(); print(round(sum(slept), 6))"
    )
    done = run(2, "-c", code)
    expected = round(5 * 0.2 / Prio(0.8).factor(1, 2), 6)
    assert done.stdout.count(str(expected)) == 2
