"""Output files of jobs that exist before the jobs start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], "new\n"), (["--open-mode", "append"], "old\nnew\n")],
    ids=["default", "append"],
)
def test_the_output_of_an_older_job_is_replaced_or_appended_to(
    service: Any, options: list[str], expected: str
) -> None:
    """A new service numbers its jobs from 1 and finds the file of an earlier one."""
    (service.work / "reshape-1.out").write_text("old\n")
    command = [sys.executable, "-m", "reshape", "submit", "--dir", str(service.directory)]
    subprocess.run(
        [*command, "-n", "1", "--wait", *options, "--", "echo", "new"],
        cwd=service.work,
        check=True,
        timeout=60,
        capture_output=True,
    )
    assert service.output(1) == expected


def test_an_output_that_links_to_a_file_of_another_kind_is_not_emptied(service: Any) -> None:
    (service.work / "reshape-1.out").symlink_to("/dev/null")
    assert service.wait(service.submit(["echo", "x"])).state == "COMPLETED"
