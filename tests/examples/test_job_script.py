"""The example of a job script with steps, on a service."""

from __future__ import annotations

from pathlib import Path

from command_line import invoke
from paths import EXAMPLES

from scheduler import Client
from scheduler.client import background

SCRIPT = EXAMPLES / "job_script" / "study.sh"


def test_the_steps_of_a_study(tmp_path: Path) -> None:
    directory, work = tmp_path / "service", tmp_path / "work"
    work.mkdir()
    process = background.start(directory, ["--processors", "4"])
    try:
        command = ["batch", "--dir", directory, "--wait", SCRIPT, "one", "two", "three"]
        invoke(*command, cwd=work)
        with Client(directory) as client:
            job = client.job(1).info()
            steps = [client.job(number).info() for _, number in job.steps]
    finally:
        background.stop(directory, kill=True)
        process.wait()
    lines = (work / "reshape-1.out").read_text().splitlines()
    assert lines[:2] == ["job 1 has 4 processors", "prepared in step 0"]
    assert [line.endswith("verified") for line in lines[2:]] == [True] * 3
    assert sorted(step.name for step in steps) == ["one", "prepare", "summary", "three", "two"]
    assert {step.state for step in steps} == {"COMPLETED"}
