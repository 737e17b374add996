"""The complete demo with a small workload: real services and MPI programs, no leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from demo_processes import demo_results, of_the_demo, wait_for_programs
from waiting import LIMIT_S

COMMAND = [sys.executable, "-m", "reshape", "demo", "--processors", "4"]


@pytest.fixture
def environment(temporary: Path) -> dict[str, str]:
    """An environment whose temporary directory identifies the processes of this test."""
    return os.environ | {"TMPDIR": str(temporary)}


def test_the_demo_compares_two_runs(
    tmp_path: Path, temporary: Path, environment: dict[str, str]
) -> None:
    out = tmp_path / "out"
    results = demo_results(COMMAND, out, environment, "--jobs", "4", "--seed", "3")
    assert (results["seed"], results["processors"], results["scenario"]) == (3, 4, "malleable")
    for name in ("static", "resizable"):
        run = results[name]
        assert (run["jobs"], run["jobs_verified"]) == (4, 4)
        assert run["mean_turnaround_s"] > run["mean_wait_s"] >= 0
        assert 0 < run["utilization"] <= 1
        assert len(list((out / name).glob("job-*.out"))) == 4
    static, resizable = results["static"], results["resizable"]
    assert static["expansions"] == static["contractions"] == 0
    assert resizable["expansions"] > 0
    predicted = results["predicted"]
    assert predicted.keys() == {"static", "resizable"}
    assert all(0 < run["mean_turnaround_s"] < run["makespan_s"] for run in predicted.values())
    assert Path(results["report"]).stat().st_size < 200_000
    assert of_the_demo(temporary) == []
    assert os.listdir(temporary) == []


def test_a_directory_that_cannot_be_created_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [*COMMAND, "--jobs", "4", "--out", str(tmp_path / "file" / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("reshape: error: directory ")
    assert "cannot be created: Not a directory" in done.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_an_interrupted_demo_ends_its_processes(
    number: signal.Signals, tmp_path: Path, temporary: Path, environment: dict[str, str]
) -> None:
    with subprocess.Popen(
        [*COMMAND, "--jobs", "4", "--out", str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_programs(temporary)
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert of_the_demo(temporary) == []
    assert os.listdir(temporary) == []
