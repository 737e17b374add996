"""Collective tests pass if they pass on all ranks; a fault on one rank ends only its own test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from collective import Result, common_result
from paths import SUPPORT

COLLECTIVE = """
import os, signal
import pytest
from mpi4py import MPI

comm = MPI.COMM_WORLD
on_2_ranks = pytest.mark.mpi(min_size=2, environment={"SEEN_BY_RANKS": "yes"})

@on_2_ranks
def test_passes(tmp_path):
    assert os.environ["SEEN_BY_RANKS"] == "yes"
    assert comm.size == 2
    assert f"tmp-{comm.rank}" in tmp_path.parts  # a folder of its own

@on_2_ranks
def test_fails_on_one_rank():
    assert comm.rank != 1, "expected"
    comm.Barrier()

@on_2_ranks
def test_is_skipped_on_one_rank():
    if comm.rank == 0: pytest.skip("not here")

@on_2_ranks
def test_is_killed():
    if comm.rank == 1: os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()

@on_2_ranks
@pytest.mark.timeout(0.5)
def test_waits_for_ever():
    if comm.rank == 0: comm.recv(source=1)

@on_2_ranks
@pytest.mark.parametrize("k", [1, 2])
def test_runs_in_a_new_world(k):
    assert comm.allreduce(1) == 2

@on_2_ranks
@pytest.mark.skipif(True, reason="everywhere")
def test_is_skipped(): pass

def test_without_ranks(): pass
"""
BROKEN = """
import pytest
from mpi4py import MPI

@pytest.mark.mpi(min_size=2)
def test_of_a_file_that_one_rank_cannot_import():
    MPI.COMM_WORLD.Barrier()

if MPI.COMM_WORLD.rank == 1: raise ImportError("injected")
"""


def outcomes(report: Path) -> dict[str, str]:
    """Outcome of each test in a file of JUnit's format, with its text if it has not passed."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        child = next(iter(case), None)
        text = "passed" if child is None else f"{child.tag}: {child.get('message')} {child.text}"
        found[case.attrib["name"]] = text
    return found


@pytest.mark.long
def test_each_test_is_reported_as_its_ranks_end_it(tmp_path: Path) -> None:
    """The two files run side by side, in worlds of their own."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["collective"]')
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_ranks.py").write_text(COLLECTIVE)
    (tmp_path / "test_broken.py").write_text(BROKEN)
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junit-xml={report}"),
            *("-n", "2", "--dist", "loadfile", str(tmp_path)),
        ],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = outcomes(report)
    assert {name for name, text in found.items() if text == "passed"} == {
        "test_passes",
        "test_runs_in_a_new_world[1]",
        "test_runs_in_a_new_world[2]",
        "test_without_ranks",
    }
    parts = {
        "test_fails_on_one_rank": ("rank 1 of 2: AssertionError: expected", "assert 1 != 1"),
        "test_is_skipped_on_one_rank": ("rank 0: skipped", "rank 1: passed"),
        "test_is_killed": ("rank 1: did not end", "exit code 9"),
        "test_waits_for_ever": ("rank 0: did not end", "comm.recv(source=1)"),
        "test_of_a_file_that_one_rank_cannot_import": ("rank 1 of 2: ImportError: injected",),
    }
    for name, expected in parts.items():
        assert found[name].startswith("failure: ")
        assert all(part in found[name] for part in expected), found[name]
    assert found["test_is_skipped"].startswith("skipped: everywhere")
    assert len(found) == 10
    assert "5 failed, 4 passed, 1 skipped" in done.stdout


@pytest.mark.parametrize("ranks", [[{}, {}], [{"f::t": Result("passed", "")}, {}]])
def test_a_test_that_did_not_run_on_every_rank_fails(ranks: list[dict[str, Result]]) -> None:
    outcome, text = common_result("f::t", ranks, "mpiexec ended with exit code 0")
    assert outcome == "failed"
    assert "rank 1: did not end" in text
