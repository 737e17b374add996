"""`reshape try` on programs of ten kinds, on the applications and on the examples."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import EXAMPLES, ROOT

from scheduler.client.trial.driver import PID_SPACE

PROGRAMS = sorted((ROOT / "tests" / "scheduler" / "client" / "trial" / "programs").glob("*.py"))
#: Arguments of the applications. Lines with the number of processes, times and errors differ.
APPS = (
    "jacobi --n 30 --iterations 30",
    "lu --n 60 --block 4",
    "synthetic --seconds 0 --mib 1 --iterations 30",
    "triad --mib 1 --sweeps 1 --iterations 30",
    "fft2d --n 30 --columns 21 --iterations 21",
    "masterworker --tasks 200 --batch 1",
)
OF_APPS = ["--ignore", "processors=|max_error=|residual=|mb_per_s=|busy_s="]
#: All examples that are programs of a job; those that write a file are given its name.
OF_EXAMPLES = sorted(
    path
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*/*.py")]
    if "app.iterations(" in path.read_text()
)
#: Their output shows what is lost in a resize.
LOSE = {"3_registered_data"}
#: In `make test`: one with an array, one with communicators of its own, one with items.
QUICK = {"heat", "conjugate_gradients", "particles"}


def outcome(folder: Path, options: list[str], *command: str) -> tuple[int, str]:
    """Exit code and output of the command with a program that is resized at most five times."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "reshape", "try", "-n", "2", "--max", "4", "--seed", "4"),
            *("--resizes", "5", "--limit", "100", *options, "--", "python", *command),
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=280,
    )
    print(done.stdout)
    return done.returncode, done.stdout


def test_the_memory_of_a_trial_that_was_killed_is_removed_by_the_next_one(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    of_killed, of_running, of_container = (
        Path(f"/dev/shm/reshape-try-{pid}-{space}-1")
        for pid, space in ((ended.pid, PID_SPACE), (os.getpid(), PID_SPACE), (ended.pid, 1))
    )
    try:
        for folder in (of_killed, of_running, of_container):
            folder.mkdir(0o700)
            (folder / "u.e0.r0").write_bytes(b"data")
        assert "exit code 2" in outcome(tmp_path, [], "missing.py")[1]
        assert not of_killed.exists()
        assert of_running.exists()
        assert of_container.exists(), "its processes have other numbers"
    finally:
        for folder in (of_killed, of_running, of_container):
            shutil.rmtree(folder, ignore_errors=True)


def attempt(folder: Path, options: list[str], *command: str) -> None:
    """Let the command find no mistake."""
    code, text = outcome(folder, options, *command)
    assert code == 0
    assert re.search(r"^equal: .* after [2-5] resizes$", text, re.MULTILINE)


def marked(name: str, value: object) -> Any:
    return pytest.param(value, id=name, marks=[] if name in QUICK else [pytest.mark.long])


@pytest.mark.parametrize("program", [marked(path.stem, path) for path in PROGRAMS])
def test_program_of_this_kind(temporary: Path, program: Path) -> None:
    shutil.copy(program, temporary)
    attempt(temporary, ["--rtol", "1e-9"], program.name)


@pytest.mark.parametrize("arguments", [marked(text.split()[0], text) for text in APPS])
def test_application(temporary: Path, arguments: str) -> None:
    name, *words = arguments.split()
    attempt(temporary, OF_APPS, "-m", f"apps.{name}", *words)


@pytest.mark.parametrize(
    "program", [marked(path.stem, path) for path in OF_EXAMPLES if path.stem not in LOSE]
)
def test_example(temporary: Path, program: Path) -> None:
    if program.stem == "hdf5_by_rank_0":
        pytest.importorskip("h5py")
    shutil.copy(program, temporary)
    file = ["data"] if "sys.argv[1]," in program.read_text() else []
    attempt(temporary, [], program.name, *file)


@pytest.mark.parametrize("name", sorted(LOSE))
def test_an_example_that_loses_what_is_not_registered(temporary: Path, name: str) -> None:
    """What the guide shows."""
    (program,) = (path for path in OF_EXAMPLES if path.stem == name)
    shutil.copy(program, temporary)
    code, text = outcome(temporary, [], program.name)
    assert code == 1
    assert "mistake: output only without resizes: step   0: 1.000000 at the hottest\n" in text
    assert "mistake: output only with resizes: a rod of 1000 points\n" in text
