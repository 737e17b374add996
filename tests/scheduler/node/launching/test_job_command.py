"""Copies of job scripts."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from scheduler.node.launching.job_command import command_of_copy


@pytest.mark.parametrize(
    ("first", "rest", "printed"),
    [
        ("#!/bin/sh", 'echo "$@"\n', "a b  c\n"),
        ("#! /bin/sh -e", 'false\necho "$@"\n', ""),  # the interpreter has its argument
        (
            "#!/usr/bin/env python3",
            "import sys; print(*sys.argv[1:], __name__)\n",
            "a b  c __main__\n",
        ),
        ("#!/usr/bin/tail -n+2", "text\r\n", "text\r\n"),  # any program, and the bytes as they are
    ],
)
def test_a_copy_runs_as_the_script_would(
    tmp_path: Path, first: str, rest: str, printed: str
) -> None:
    arguments = [] if "tail" in first else ["a", "b  c"]
    command = command_of_copy(tmp_path, f"{first}\n{rest}", arguments)
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.stdout.decode() == printed
    assert stat.S_IMODE((tmp_path / "script").stat().st_mode) == 0o600


def test_a_further_start_leaves_the_earlier_copy_as_it_is(tmp_path: Path) -> None:
    """The shell reads its script while it runs it."""
    command = command_of_copy(tmp_path, "#!/bin/sh\nread line\necho first\n", [])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        command_of_copy(tmp_path, "#!/bin/sh\nread line\necho other\n", [])
        told, _ = running.communicate("go\n")
    assert told in ("first\n", "other\n")
    assert (tmp_path / "script").read_text().endswith("other\n")
