"""Moves under mpiexec, on 1 to 8 ranks."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import SUPPORT


def run_world(program, size, *arguments, timeout=120, **variables):
    """Output of a program on ``size`` ranks; its processes have ended on return."""
    world = SUPPORT / program
    hidden = ("PMI", "HYDRA", "HYDI", "MPI_LOCAL", "MPIR")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", size, sys.executable, world, size, *arguments]
    process = subprocess.Popen(
        [str(word) for word in command],
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"no end after {timeout} s:\n{output}")
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("size", range(1, 9))
def test_random_moves(size):
    cases = 100 if size <= 4 else 40
    output = run_world("redistribution_world.py", size, 1000 + size, cases)
    found = re.search(rf"{cases} moves right on {size} ranks, (\d+) bytes crossed", output)
    assert found, output
    assert (int(found[1]) > 0) == (size > 1)


@pytest.mark.parametrize("size", [2, 5])
def test_random_moves_without_reading_the_memory_of_other_processes(size):
    """As in some containers: MPI then transfers messages in small portions."""
    output = run_world(
        "redistribution_world.py", size, 2000 + size, 40, MPIR_CVAR_CH4_CMA_ENABLE="0"
    )
    assert f"40 moves right on {size} ranks" in output


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_random_sparse_matrices_and_items(size):
    assert f"20 sparse moves right on {size} ranks" in run_world("rows_world.py", size, 20)
